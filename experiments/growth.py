"""Reserved memory over many steps that all differ: ``python -m experiments.growth``.

The seq2seq network is trained on mini-batches of sentences of any length, so no two steps ask for the same blocks.
Pools grow when a request fits none of their free chunks. stowplan packs its arena for the requests it has seen, and
places requests that do not follow the plan in its free ranges. The figure shows after each step the bytes reserved by
stowplan's pool as it runs, and by models of today's pools for the same requests (those of at least `LEAST` bytes, which
the pool plans), and the most bytes that were alive at once so far. On a GPU it also shows CuPy's own pool, which serves
the recorded steps.

The paper reports memory after 10 mini-batches (Sekiyama et al. 2018, section 5); the table has that row, too.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

import stowplan
from stowplan import CupyPool, NumpyPool, NumpyRecorder
from stowplan.insight.pool_models import POOL_MODELS, Requests, replay
from stowplan.profiler import ALLOCATE, FREE, StepLog

from .measures import output
from .measures.recordings import LEAST
from .measures.runner import NO_GPU, Cell, Row, Runner, command, has_gpu, title_of
from .measures.workload import Workload
from .memory import POOLS
from .models import MODELS

MODEL = MODELS["seq2seq"]
STEPS, QUICK_STEPS = 200, 20
REPORTED = 10
"""Mini-batches after which the paper reports memory."""
REAL = "cupy-itself"
LINES = {**POOLS, REAL: "CuPy itself", "stowplan": "stowplan"}
"""Lines of the figure, if they were measured: row key to title."""
TINTS = dict(zip((*POOLS, "stowplan", REAL), (*output.TINTS, "#6f8f3a"), strict=True))


def recorder_of(device: str, logs: list[StepLog]) -> Any:
    """Return a recorder that appends the log of every step."""
    base: Any = NumpyRecorder if device == "cpu" else stowplan.CupyRecorder  # which imports CuPy

    class Logging(base):  # type: ignore[misc]
        def _end_step(self) -> Any:
            step = super()._end_step()
            logs.append(StepLog(step.events))
            return step

    return Logging()


def requests_of(logs: Sequence[StepLog]) -> tuple[Requests, list[int]]:
    """Put the requests of steps in a row; return them, and how many there are by the end of each step.

    A block that lives beyond the step after its own is never freed here.
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


def measure(runner: Runner, device: str, batch: int, steps: int) -> Row:
    """Train twice, recorded and through the pool; return bytes after each step, by pool."""
    cell = Cell(device, MODEL, "training", batch)
    mini_batches = runner.data.mini_batches(batch, steps)

    def train(
        what: str, serving: AbstractContextManager[Callable[[], object]], step: Callable[[], Any]
    ) -> None:
        work = Workload(MODEL, cell.phase, batch, runner.data, device == "gpu")
        with serving as after_step:
            for examples in track(mini_batches, f"{device}, {what}", console=Console(stderr=True)):
                with step():
                    work.step(examples)
                after_step()

    logs: list[StepLog] = []
    recorder = recorder_of(device, logs)
    itself: list[int] = []
    train("recorded", _recorded(device, recorder, itself), recorder.step)
    script, ends = requests_of(logs)
    last = np.array(ends) - 1
    row: Row = {REAL: itself} if itself else {}
    for name in track(POOLS, f"{device}, pool models", console=Console(stderr=True)):
        use = replay(script, POOL_MODELS[name](), 1)
        row[name] = np.maximum.accumulate(use.reserved)[last].tolist()
        row["live"] = np.maximum.accumulate(use.live)[last].tolist()
    pool = NumpyPool() if device == "cpu" else CupyPool()
    after: list[int] = []
    train("through the pool", _served(pool, after), pool.step)
    return row | {"stowplan": np.maximum.accumulate(after).tolist()}


@contextmanager
def _recorded(device: str, recorder: Any, reserved: list[int]) -> Iterator[Callable[[], object]]:
    """Record, on a GPU over a pool of CuPy's own; yield a function that notes the bytes that it has reserved."""
    if device == "cpu":
        with recorder:
            yield lambda: None
        return
    from cupy import cuda

    pool = cuda.MemoryPool()
    with cuda.using_allocator(pool.malloc), recorder:
        yield lambda: reserved.append(pool.total_bytes())


@contextmanager
def _served(pool: NumpyPool | CupyPool, reserved: list[int]) -> Iterator[Callable[[], object]]:
    """Serve through stowplan's pool; yield a function that notes the bytes reserved: on a GPU those that it lacks."""

    def now() -> int:
        if isinstance(pool, NumpyPool):
            return pool.stats.peak_reserved_bytes
        from cupy.cuda import runtime

        free, total = runtime.memGetInfo()
        return int(total - free)

    gc.collect()  # arrays of the recorded run
    before = now()  # the parameters were there before

    def note() -> None:
        pool.wait()
        reserved.append(now() - before)

    with pool.serving():
        yield note


def draw(found: dict[str, Row], batch: int) -> Any:
    """Draw what is reserved after each step, a line for each pool; on the right without the largest of them.

    Parameters
    ----------
    found
        Rows of `measure` by device; each gets a pair of panels.
    """
    figure = output.new_figure(12, 4.5 * len(found))
    panels = figure.subplots(len(found), 2, squeeze=False)
    for (device, row), pair in zip(found.items(), panels, strict=True):
        largest = max(POOLS, key=lambda name: row[name][-1])
        for axes, without in zip(pair, (None, largest), strict=True):
            for name in (*LINES, "live"):
                if name == without or name not in row:
                    continue
                label, tint = LINES.get(name, "alive at most"), TINTS.get(name, output.INK)
                steps, width = range(1, len(row[name]) + 1), 2.4 if name == "stowplan" else 1.4
                style = ":" if name == "live" else "-"
                axes.plot(steps, np.array(row[name]) / 2**20, style, color=tint, linewidth=width, label=label)
            axes.set_xlabel("mini-batches", color=output.INK)
            where = "" if device == "cpu" else f" ({title_of(device)})"
            title = f"{MODEL.title}, batch {batch}, sentences of any length{where}"
            output.tidy(axes, title if without is None else f"... without {POOLS[without]}", "MiB reserved")
        pair[0].set_ylim(bottom=0)
    # The last device has all the lines that there are: a GPU's come after the host's.
    legend = panels[-1][0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside right upper", fontsize=8, frameon=False)
    return figure


@command(limit=300, quick_limit=5)
def main(runner: Runner) -> None:
    """Show how pools grow over steps that all differ."""
    steps = QUICK_STEPS if runner.quick else STEPS
    batch = (runner.batches or MODEL.batches)[0]
    rows: list[Row] = []
    found: dict[str, Row] = {}
    for device in runner.devices:
        if device == "gpu" and not has_gpu():
            rows.append({"device": device, "note": NO_GPU})
            continue
        name = f"growth/{device}-{batch}-{steps}"
        row = found[device] = runner.finished(name, functools.partial(measure, runner, device, batch, steps))
        for pool in filter(row.__contains__, LINES):
            over = {count: row[pool][count - 1] / row["live"][count - 1] for count in (REPORTED, steps)}
            rows.append(
                {
                    "device": title_of(device),
                    "pool": LINES[pool],
                    "reserved_10": row[pool][REPORTED - 1],
                    "over_live_10": over[REPORTED],
                    "reserved": row[pool][-1],
                    "over_live": over[steps],
                    "saved": row["stowplan"][-1] / row[pool][-1] - 1,
                }
            )
    if found:
        output.save(draw(found, batch), runner.out / "growth")
    column = output.Column
    columns = [
        column("pool", "pool"),
        column(f"after {REPORTED}: MiB", "reserved_10", output.mib),
        column("over live", "over_live_10", "{:.2f}".format),
        column(f"after {steps}: MiB", "reserved", output.mib),
        column("over live ", "over_live", "{:.2f}".format),
        column("stowplan over it", "saved", output.percent),
    ]
    title = f"Memory of {MODEL.title}, batch {batch}, over {steps} mini-batches"
    output.write_table(rows, columns, runner.out / "growth", title)


if __name__ == "__main__":
    main()
