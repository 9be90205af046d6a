"""A worker for each contestant, all of them at once, that run steps in turns whose order changes.

A *contestant* is a way to run the same worker: ``glibc`` is Python as it is, ``stowplan`` has a `stowplan.TorchPool`
and marks its steps, and each of `measures.peers` has something in its environment. In a *round* all start again, warm
up, and take some turns each; one runs at a time. Its figure in a round is the median over turns of the ratio to glibc's
in the same turn, for two processes of one program can differ as long as they live. Medians over rounds count.

What a row has, for each contestant C: ``cpu_C`` and ``error_C``, the ratio of CPU times and its standard error;
``over_C``, stowplan's CPU time over C's; ``seconds_C``, ``count_C`` and ``bytes_C``, the medians of a step's CPU time
and page faults and of the largest resident set in measured turns; ``identical``, whether all came to the same losses
and parameters, bit by bit; for the one that can say it, ``replayed_C``, ``arena_C`` and ``fragmentation_C``: the share
of requests of planned sizes that came from a plan in the measured turns, bytes, and arena over lower bound - 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..measures import contest, peers
from ..measures.apart import CannotRunError, failure
from ..measures.contest import OURS
from ..measures.kept import Row
from ..measures.medians import standard_error

GLIBC = "glibc"
WARMUP = (4, 4, 2)
"""Steps of the turns before the first that counts: enough for steps to be planned. After
each turn, pools that can be told to have their plans ready."""


@dataclass(frozen=True)
class Work:
    """What a worker does.

    Attributes
    ----------
    network
        A name of `networks`.
    phase, threads, quick
        Of the network.
    """

    network: str
    phase: str
    threads: int
    quick: bool


class Worker:
    """A process of a contestant."""

    def __init__(self, work: Work, contestant: str, added: Mapping[str, str], folder: Path) -> None:
        self._what = f"{work.network}, {contestant}"
        self._log = folder / f"{contestant.replace(' ', '_')}.log"
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(work.threads))
        environment = peers.environment({**threads, **added})
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"{__package__}.worker",
                json.dumps(asdict(work) | {"pool": contestant == OURS}),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("wb"),
            text=True,
        )

    def turn(self, steps: int) -> dict[str, Any]:
        """Have it run a turn; return the usage."""
        assert self._process.stdin is not None
        try:
            print(steps, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._error() from None
        return self._answer()

    def end(self) -> dict[str, Any]:
        """Have it end; return what it has come to."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        found = self._answer()
        self._process.wait()
        return found

    def stop(self) -> None:
        """End it, if it runs."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._error()
        return dict(json.loads(line))

    def _error(self) -> CannotRunError:
        return failure(self._what, self._process.wait(), self._log.read_text(errors="replace"))


def contestants() -> dict[str, dict[str, str]]:
    """Return what each adds to the environment, by name."""
    return contest.contestants(GLIBC, OURS)


def run_round(
    work: Work, rng: np.random.Generator, turns: int, folder: Path
) -> dict[str, list[dict[str, Any]]]:
    """Run a round; return for each contestant its answers: to the warm-up's turns, to `turns` more, at its end.

    Raises
    ------
    CannotRunError
        A worker failed.
    """
    with ExitStack() as stack:
        workers = {}
        for name, added in contestants().items():
            workers[name] = Worker(work, name, added, folder)
            stack.callback(workers[name].stop)
        found = {name: [worker.turn(count) for count in WARMUP] for name, worker in workers.items()}
        for _ in range(turns):
            for name in map(str, rng.permutation(list(workers))):
                found[name].append(workers[name].turn(4 if work.quick else 2))
        for name, worker in workers.items():
            found[name].append(worker.end())
    return found


def measure(work: Work, rounds: int, turns: int, seed: int) -> Row:
    """Run so many rounds of so many turns; return the row."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        return compare([run_round(work, rng, turns, Path(folder)) for _ in range(rounds)])


def compare(rounds: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]) -> Row:
    """Return the row of these rounds, as `run_round` returns them."""
    names = list(rounds[0])
    measured = [{name: found[name][len(WARMUP) : -1] for name in names} for found in rounds]
    came_to = {
        json.dumps([answer.get("losses", answer.get("digest")) for answer in found[name]])
        for found in rounds
        for name in names
    }
    row: Row = {"rounds": len(rounds), "turns": len(measured[0][GLIBC]), "identical": len(came_to) == 1}

    def median(name: str, key: str, over: str) -> float:
        return float(np.median([turn[key] / turn[over] for found in measured for turn in found[name]]))

    def ratios(name: str, other: str) -> list[float]:
        return [
            float(np.median([a["cpu"] / b["cpu"] for a, b in zip(found[name], found[other], strict=True)]))
            for found in measured
        ]

    for name in names:
        row |= {
            f"cpu_{name}": float(np.median(ratios(name, GLIBC))),
            f"error_{name}": standard_error(ratios(name, GLIBC)),
            f"seconds_{name}": median(name, "cpu", "steps"),
            f"count_{name}": median(name, "faults", "steps"),
            f"bytes_{name}": float(np.median([turn["peak"] for found in measured for turn in found[name]])),
        }
        if OURS in names:
            row[f"over_{name}"] = float(np.median(ratios(OURS, name)))
    if OURS in names:
        row |= _shares(OURS, rounds)
    return row


def _shares(name: str, rounds: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]) -> Row:
    """Return what a pool counted from the warm-up's end to the last turn, and its arena at the end."""
    planned, replayed = (
        sum(found[name][-2]["pool"][key] - found[name][len(WARMUP) - 1]["pool"][key] for found in rounds)
        for key in ("requests", "replayed")
    )
    last = rounds[-1][name][-2]["pool"]
    return {
        f"replayed_{name}": replayed / planned,
        f"arena_{name}": last["arena_bytes"],
        f"fragmentation_{name}": last["fragmentation"],
    }
