"""Reserved memory over many steps that all differ: ``python -m experiments.growth``.

The seq2seq network is trained on mini-batches of sentences of any length, so no two steps ask for the same blocks.
Pools grow as sizes come that their free chunks do not fit; stowplan's arena is packed for what was seen, and what
does not follow the plan is placed in its gaps. Shown after each step: bytes reserved by stowplan's pool as it runs,
and by models of today's pools for the same requests (those of at least `LEAST` bytes, which the pool plans); and the
most that was alive at once so far.

The paper reports memory after 10 mini-batches (Sekiyama et al. 2018, section 5); that row stands in the table as
well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track

from stowplan import NumpyPool, NumpyRecorder
from stowplan.packing.pools import POOL_MODELS, Requests, replay
from stowplan.profiler import ALLOCATE, FREE, StepLog

from . import report
from .memory import POOLS
from .models import MODELS
from .recordings import LEAST
from .study import NO_GPU, Cell, Row, Study, command, has_gpu
from .workload import Workload

MODEL = MODELS["seq2seq"]
STEPS, QUICK_STEPS = 200, 20
REPORTED = 10
"""Mini-batches after which the paper reports memory."""


class Logs(NumpyRecorder):
    """Keep the log of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[StepLog] = []

    def _end_step(self) -> tuple[npt.NDArray[np.void], bool]:
        events, complete = super()._end_step()
        self.logs.append(StepLog(events))
        return events, complete


def requests_of(logs: Sequence[StepLog]) -> tuple[Requests, list[int]]:
    """Put the requests of steps in a row; return them, and how many there are by the end of each step.

    A block that is alive for longer than the step after its own is freed by no one.
    """
    block, allocate, size, ends = [], [], [], []
    first, before = 0, 0  # of this step's blocks, and of those of the step before
    for log in logs:
        events = log.events
        wanted = events["kind"] == ALLOCATE
        own = wanted | (events["kind"] == FREE)
        block.append(events["request"].astype(np.int64) + np.where(own, first, before))
        allocate.append(wanted)
        size.append(log.requested)
        before, first = first, first + len(log.requested)
        ends.append(len(events))
    sizes = np.concatenate(size)
    blocks, wanted = np.concatenate(block), np.concatenate(allocate)
    keep = sizes[blocks] >= LEAST
    until = np.concatenate([[0], np.cumsum(keep)])[np.cumsum(ends)]
    return Requests(blocks[keep], wanted[keep], sizes), until.tolist()


def measure(study: Study, batch: int, steps: int) -> Row:
    """Train twice, recorded and through the pool; return bytes after each step, by pool."""
    cell = Cell("cpu", MODEL, "training", batch)
    mini_batches = study.data.mini_batches(batch, steps)
    recorder = Logs()
    work = Workload(MODEL, cell.phase, batch, study.data)
    with recorder:
        for examples in track(mini_batches, "recorded", console=Console(stderr=True)):
            with recorder.step():
                work.step(examples)
    script, ends = requests_of(recorder.logs)
    last = np.array(ends) - 1
    row: Row = {}
    for name in track(POOLS, "pool models", console=Console(stderr=True)):
        use = replay(script, POOL_MODELS[name](), 1)
        row[name] = np.maximum.accumulate(use.reserved)[last].tolist()
        row["live"] = np.maximum.accumulate(use.live)[last].tolist()
    pool = NumpyPool()
    row["stowplan"] = []
    work = Workload(MODEL, cell.phase, batch, study.data)
    with pool:
        before = pool.stats.reserved_bytes  # nothing: the parameters were there before
        for examples in track(mini_batches, "through the pool", console=Console(stderr=True)):
            with pool.step():
                work.step(examples)
            pool.wait()
            row["stowplan"].append(pool.stats.peak_reserved_bytes - before)
    return row


def draw(row: Row, batch: int) -> Any:
    """Draw what is reserved after each step, a line for each pool; on the right without the largest of them."""
    figure = report.new_figure(12, 4.5)
    largest = max(POOLS, key=lambda name: row[name][-1])
    lines = [(name, "-", tint) for name, tint in zip((*POOLS, "stowplan"), report.TINTS, strict=True)]
    for axes, without in zip(figure.subplots(1, 2), (None, largest), strict=True):
        for name, style, tint in (*lines, ("live", ":", report.INK)):
            if name == without:
                continue
            label = POOLS.get(name, {"live": "alive at most"}.get(name, name))
            steps, width = range(1, len(row[name]) + 1), 2.4 if name == "stowplan" else 1.4
            axes.plot(steps, np.array(row[name]) / 2**20, style, color=tint, linewidth=width, label=label)
        axes.set_xlabel("mini-batches", color=report.INK)
        title = f"{MODEL.title}, batch {batch}, sentences of any length"
        report.tidy(axes, title if without is None else f"... without {POOLS[without]}", "MiB reserved")
    figure.axes[0].set_ylim(bottom=0)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False
    )
    return figure


@command(limit=300, quick_limit=5)
@click.option(
    "--steps",
    type=click.IntRange(REPORTED),
    help=f"Mini-batches.  [default: {STEPS}; with --quick {QUICK_STEPS}]",
)
def main(study: Study, steps: int | None) -> None:
    """Show how pools grow over steps that all differ."""
    steps = steps or (QUICK_STEPS if study.quick else STEPS)
    batch = (study.batches or MODEL.batches)[0]
    rows: list[Row] = []
    for device in study.devices:
        if device == "gpu":
            rows.append(
                {
                    "device": device,
                    "note": NO_GPU if not has_gpu() else "not run: models stand for pools, see CPU",
                }
            )
            continue
        found = study.finished(f"growth/{batch}-{steps}", lambda: measure(study, batch, steps))
        for name in (*POOLS, "stowplan"):
            over = {count: found[name][count - 1] / found["live"][count - 1] for count in (REPORTED, steps)}
            rows.append(
                {
                    "device": device,
                    "pool": POOLS.get(name, "stowplan"),
                    "reserved_10": found[name][REPORTED - 1],
                    "over_live_10": over[REPORTED],
                    "reserved": found[name][-1],
                    "over_live": over[steps],
                    "saved": found["stowplan"][-1] / found[name][-1] - 1,
                }
            )
        report.save(draw(found, batch), study.out / "growth")
    column = report.Column
    columns = [
        column("pool", "pool"),
        column(f"after {REPORTED}: MiB", "reserved_10", report.mib),
        column("over live", "over_live_10", "{:.2f}".format),
        column(f"after {steps}: MiB", "reserved", report.mib),
        column("over live ", "over_live", "{:.2f}".format),
        column("stowplan over it", "saved", report.percent),
    ]
    title = f"Memory of {MODEL.title}, batch {batch}, over {steps} mini-batches"
    report.write_table(rows, columns, study.out / "growth", title)


if __name__ == "__main__":
    main()
