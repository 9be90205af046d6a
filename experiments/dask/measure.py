"""Run one computation on a cluster of each contestant (`measures.contest`), and compare what they used.

The workers of a LocalCluster of 2 processes with 2 threads each are: ``plain``, Dask as it is; ``stowplan``, with
`stowplan.dask.PoolPlugin`; and those of `measures.peers`, by Dask's setting for the environment
(``distributed.nanny.pre-spawn-environ``). All clusters are there at once. After the warm-up, each computes once in a
round; what counts are the workers' own CPU time and page faults from before to after that. ``rss_C`` and ``bytes_C``
are of the workers' largest resident sets in all rounds.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import dask
import numpy as np
from distributed import Client, LocalCluster

import stowplan.dask

from ..measures import contest
from ..measures.contest import OURS, Usage
from ..measures.kept import Row
from .computations import Computation

PLAIN = "plain"
PROCESSES, THREADS = 2, 2
SPAWN = "distributed.nanny.pre-spawn-environ"


@contextmanager
def cluster(contestant: str, added: Mapping[str, str]) -> Iterator[Client]:
    """Start a contestant's cluster."""
    environment = {**dask.config.get(SPAWN), **added}
    with ExitStack() as stack:
        with dask.config.set({SPAWN: environment}):
            workers = LocalCluster(
                n_workers=PROCESSES, threads_per_worker=THREADS, dashboard_address=":0", memory_limit=0
            )
        stack.enter_context(workers)
        client = stack.enter_context(Client(workers, set_as_default=False))
        if contestant == OURS:
            client.register_plugin(stowplan.dask.PoolPlugin())
        yield client


def used() -> tuple[float, int, int]:
    """Return this process's CPU time, minor page faults and largest resident set so far; run by each worker."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime, found.ru_minflt, found.ru_maxrss * 1024


def run(client: Client, computation: Computation, size: int) -> Usage:
    """Compute once."""
    before = client.run(used)
    result = np.asarray(client.compute(computation.build(size)).result())
    after = client.run(used)
    cpu = sum(after[worker][0] - before[worker][0] for worker in after)
    faults = sum(after[worker][1] - before[worker][1] for worker in after)
    rss = sum(rss for _, _, rss in after.values())
    return Usage(cpu, faults, rss, hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest())


def measure(computation: Computation, rounds: int, warmup: int, size: int, seed: int) -> Row:
    """Run so many rounds of a computation after the warm-up; return its row."""
    ways = contest.contestants(PLAIN)
    with ExitStack() as stack:
        clients = {name: stack.enter_context(cluster(name, added)) for name, added in ways.items()}
        first = [run(client, computation, size) for client in clients.values() for _ in range(warmup)]
        found = contest.in_turns(list(ways), rounds, seed, lambda name: run(clients[name], computation, size))
    return compare(found, {use.output for use in first})


def compare(found: Mapping[str, Sequence[Usage]], digests: set[object]) -> Row:
    """Return the row of these runs, by contestant and round; `digests` are those of the warm-up."""
    row = contest.row_of(found)
    row["identical"] &= digests <= {found[PLAIN][0].output}
    for name, runs in found.items():
        row |= {f"rss_{name}": runs[-1].rss / found[PLAIN][-1].rss, f"bytes_{name}": runs[-1].rss}
    return row
