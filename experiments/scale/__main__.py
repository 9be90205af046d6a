"""What a cluster would do with shared plans, and what a rank of it would need: ``python -m experiments.scale``.

``scale_memory``: the live peak of a rank of the models of 22 to 1000 billion parameters (`experiments.scale.memory`).

``scale``: a cluster's ranks start at once, record the same step, and need its placement. Four ways to it:

``alone``
    Each rank packs. No traffic.
``store, cold``
    An empty directory that all share. Each rank looks, finds nothing, packs, and keeps the file: all write the same.
``store, warm``
    A directory that an earlier run has filled. Each rank reads one file.
``broadcast``
    ``stowplan.chainer.share_plans``: rank 0 packs, and sends the placement to all others in turn, in pieces.

**Measured here**, on one rank whose pool plans the step of GPT blocks split along the sequence: planning's CPU seconds
with an empty directory and with a filled one, and the file's bytes; and rank 0's CPU seconds for each message, to
another rank by shared memory. **Assumed**, by options: what the directory's server does in a second, and rank 0's link.
**Simulated**: the server as a queue that serves requests one after the other. Left out: failures, other users of the
server, caches of its clients, and MPI's own limits.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console

from stowplan import NumpyPool
from stowplan.chainer.parallel import LoneRank, Ranks
from stowplan.planning import DirectoryStore

from ..measures import output
from ..measures.kept import Row
from ..measures.ranks import run_ranks
from ..measures.runner import ROOT
from ..models.split_block import Blocks
from .memory import predict

COUNTS = (1_000, 10_000, 100_000)
LAYERS, WORDS, WIDTH, HEADS = 48, 64, 64, 8
PIECE = 2048
"""Bytes of a message of `stowplan.chainer.share_plans`."""
STEPS, ROUNDS = 5, 3


class Costs(NamedTuple):
    """Of one rank, measured.

    Attributes
    ----------
    pack, take
        CPU seconds of planning, with an empty directory and with a filled one.
    message
        CPU seconds of rank 0 for each message to one rank.
    blocks, placement
        Of the step; bytes of its file.
    """

    pack: float
    take: float
    message: float
    blocks: int
    placement: int


def measure() -> Costs:
    """Measure what one rank does."""
    net = Blocks(LAYERS, WIDTH, HEADS, Ranks(LoneRank(8), sequence=True))
    x = np.random.default_rng(0).standard_normal((WORDS // 8, WIDTH), np.float32)

    def planning(folder: str, expected: int) -> float:
        pool = NumpyPool(plans=folder, small=512)
        with pool:
            for _ in range(STEPS):
                with pool.step():
                    net.cleargrads()
                    y = net(x, 1)
                    y.grad = x
                    y.backward()
                    del y
                pool.wait()
        if (pool.stats.packed > 0) != (expected > 0):
            raise RuntimeError(f"{pool.stats.packed} plans packed; expected {expected or 'none'}")
        return pool.stats.planning_seconds

    with tempfile.TemporaryDirectory() as folder:
        cold = min(planning(f"{folder}/{k}", 1) for k in range(ROUNDS))
        warm = min(planning(f"{folder}/0", 0) for _ in range(ROUNDS))
        kept = max(DirectoryStore(f"{folder}/0").kept(), key=lambda file: file.size)
    message = min(run_ranks(2, "experiments.scale.rank", [str(PIECE), "20000"], 60) for _ in range(ROUNDS))
    return Costs(cold, warm, message, (kept.size - 250) // 8, kept.size)


class Server(NamedTuple):
    """What serves the directory: opens, creations and renamings, and bytes, a second."""

    operations: float
    bandwidth: float

    def seconds(self, operations: int, size: int) -> float:
        """Return what so many operations, with so many bytes together, take."""
        return operations / self.operations + size / self.bandwidth


def done(arrivals: Any, service: float) -> Any:
    """Return when a server that takes `service` seconds for each request, in turn, is done with each.

    Parameters
    ----------
    arrivals
        Sorted, seconds, (n,).
    """
    turns = service * np.arange(len(arrivals))
    return np.maximum.accumulate(arrivals - turns) + turns + service


def simulate(ranks: int, costs: Costs, server: Server, link: float) -> list[Row]:
    """Return how each way goes; the ranks begin to plan within ten milliseconds.

    Parameters
    ----------
    link
        Bytes a second that rank 0 sends.
    """
    start = np.sort(np.random.default_rng(0).uniform(0, 0.01, ranks))
    size = costs.placement
    missed = done(start, server.seconds(1, 0))
    written = done(missed + costs.pack, server.seconds(2, size))
    read = done(start, server.seconds(1, size))
    messages = (2 + -(-size // PIECE)) * (ranks - 1)  # which key, how many bytes, the bytes
    sent = messages * max(costs.message, PIECE / link)
    ways = {  # the last rank's seconds, CPU seconds, bytes sent or written and read, requests of the server
        "alone": (start[-1] + costs.pack, ranks * costs.pack, 0, 0),
        "store, cold": (written[-1], ranks * costs.pack, ranks * size, 3 * ranks),
        "store, warm": (read[-1] + costs.take, ranks * costs.take, ranks * size, ranks),
        "broadcast": (
            costs.pack + sent + costs.take,
            costs.pack + (ranks - 1) * costs.take + messages * costs.message,
            messages * PIECE,
            0,
        ),
    }
    return [
        {
            "device": "cpu",
            "ranks": ranks,
            "way": way,
            "seconds": last,
            "cpu_seconds": cpu,
            "bytes": count,
            "requests": requests,
        }
        for way, (last, cpu, count, requests) in ways.items()
    ]


def _gib(count: float) -> str:
    return f"{count / 2**30:,.1f}"


@click.command()
@click.option("--operations", default=5_000.0, show_default=True, help="Of the directory's server, a second.")
@click.option("--bandwidth", default=1e9, show_default=True, help="Its bytes a second.")
@click.option("--link", default=1e9, show_default=True, help="Bytes a second that rank 0 sends.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "build" / "experiments",
    help="Folder for the tables.  [default: build/experiments]",
)
def main(operations: float, bandwidth: float, link: float, out: Path) -> None:
    """Predict a rank's memory and simulate how a cluster's ranks come by their plans."""
    out.mkdir(parents=True, exist_ok=True)
    column = output.Column
    models, checked = predict()
    told = ", ".join(f"{way} {share:.4f}" for way, share in checked.items())
    columns = [
        column("model", "model"),
        column("by", "parallel"),
        column("live peak of a rank, GiB", "peak", _gib),
        column("activations kept, GiB", "kept", _gib),
        column("parameters, gradients, Adam, GiB", "lasting", _gib),
        column("peak over both", "over_form", "{:.4f}".format),
    ]
    note = (
        "Predicted from profiles of ranks of 2 and 3 layers, at most 64 wide; float32, 8 ranks, no pipeline. "
        f"Checked on 8 layers, 256 wide, 128 words: predicted over profiled {told}."
    )
    output.write_table(
        models, columns, out / "scale_memory", "A rank of models that fit no machine here", note
    )
    costs = measure()
    rows = [row for ranks in COUNTS for row in simulate(ranks, costs, Server(operations, bandwidth), link)]
    columns = [
        column("ranks", "ranks", "{:,}".format),
        column("way", "way"),
        column("last rank has its plan, s", "seconds", "{:,.2f}".format),
        column("CPU seconds of all ranks", "cpu_seconds", "{:,.1f}".format),
        column("bytes, MiB", "bytes", output.mib),
        column("requests of the directory", "requests", "{:,}".format),
    ]
    note = (
        f"Measured on one rank: {costs.blocks:,} blocks; planning takes {costs.pack:.4f} s with an empty directory and "
        f"{costs.take:.4f} s with a filled one; the file has {costs.placement:,} bytes; a message takes rank 0 "
        f"{costs.message * 1e6:.2f} microseconds. Assumed: a directory that serves {operations:,.0f} requests and "
        f"{bandwidth / 1e9:g} GB a second, and {link / 1e9:g} GB/s from rank 0. The rest is simulated."
    )
    output.write_table(rows, columns, out / "scale", "Shared plans on a cluster", note)
    for name in ("scale_memory", "scale"):
        Console().print((out / f"{name}.md").read_text(), markup=False)


if __name__ == "__main__":
    main()
