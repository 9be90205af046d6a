"""Figure 3 of Sekiyama et al. 2018: time of a step, ``python -m experiments.time``.

For each network, training and inference, and each batch size: seconds of a step through stowplan's pool over those of
the same step without it. On the host the others are NumPy's default handler, over the C library's malloc and, by
LD_PRELOAD, over jemalloc and mimalloc where these are installed (see `experiments.hot_path`); on a GPU CuPy's own
pool, its asynchronous one and its pool over managed memory.

Each contestant is a process of its own with the same network, and they take turns, a step each: other programs on the
machine slow all of them down alike. Shown is the median over all rounds of pool / other in the same round, with the
quartiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from . import report
from .contestant import OURS, Task
from .hot_path import LIBRARIES, find_library
from .recordings import affordable, expected
from .study import CannotRunError, Cell, Row, Study, command

HOST = ("NumPy", "jemalloc", "mimalloc")
GPU = ("CuPy", "CuPy async", "CuPy managed")
SMALLEST = 2
"""A batch size that every machine should have time for, beside the paper's."""
ROUNDS, QUICK_ROUNDS = 15, 4
TURN = 0.3
"""Seconds."""


def measure(study: Study, cell: Cell) -> Row:
    """Find a cell's row; times in seconds.

    Raises
    ------
    CannotRunError
        The steps of all contestants take longer than the limit, or more memory than there is.
    """
    rounds = QUICK_ROUNDS if study.quick else ROUNDS
    contestants = contestants_of(cell.device)
    steps = sum(warmup(name) + rounds for name in contestants)
    # All contestants are in memory at once.
    if not affordable(study, cell, steps, 0.8 / len(contestants)):
        seconds, need = expected(study, cell)
        raise CannotRunError(
            f"left out: {steps} steps of about {seconds:.1f} s, {len(contestants)} times {need / 2**30:.1f} GiB"
        )
    with ExitStack() as stack:
        runners = {
            name: stack.enter_context(Runner(study, cell, name, library))
            for name, library in contestants.items()
        }
        for name, runner in runners.items():
            for _ in range(warmup(name)):
                runner.step()
        # A turn of a short step is several steps: it should last longer than a time slice of the system.
        repeat = max(1, round(TURN / expected(study, cell)[0]))
        order, turns = list(runners), []
        for _ in range(rounds):
            turns.append({name: sum(runners[name].step() for _ in range(repeat)) / repeat for name in order})
            order = [*order[1:], order[0]]  # nobody always comes after the same one
    row: Row = {"rounds": rounds}
    for name in runners:
        row[f"seconds_{name}"] = float(np.median([turn[name] for turn in turns]))
        if name != OURS:
            low, middle, high = np.quantile([turn[OURS] / turn[name] for turn in turns], (0.25, 0.5, 0.75))
            row[f"ratio_{name}"] = [float(low), float(middle), float(high)]
    return row


def warmup(contestant: str) -> int:
    """Return the number of steps before the first round; ours warms up, records, confirms, and replays twice."""
    return 5 if contestant == OURS else 2


def contestants_of(device: str) -> dict[str, Path | None]:
    """Return who takes part, and which library each is run over."""
    if device == "gpu":
        return dict.fromkeys((*GPU, OURS))
    found = {name: find_library(files) for name, files in LIBRARIES.items()}
    return {"NumPy": None, **{name: path for name, path in found.items() if path is not None}, OURS: None}


class Runner:
    """A contestant in a process of its own, which runs a step whenever it is asked to."""

    def __init__(self, study: Study, cell: Cell, name: str, library: Path | None) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        if library is not None:
            environment["LD_PRELOAD"] = str(library)
        task = Task(cell.device, cell.model.name, cell.phase, cell.batch, name, study.files)
        self._name = name
        # A file, for a pipe that nobody reads could fill up.
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed in __exit__)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.contestant", json.dumps(asdict(task))],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the end of its input ends it
        self._said.close()

    def step(self) -> float:
        """Run a step; return its seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(file=self._process.stdin, flush=True)
            return float(self._process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self._process.kill()
            self._process.wait()
            self._said.seek(0)
            said = self._said.read().strip().splitlines()
            raise CannotRunError(f"{self._name} ended early: {said[-1] if said else 'no word'}") from None


def draw(rows: Sequence[Row]) -> Any:
    """Draw the ratios with their quartiles, one panel for each contestant."""
    found = [row for row in rows if "note" not in row]
    names = [name for name in (*HOST, *GPU) if any(f"ratio_{name}" in row for row in found)]
    figure = report.new_figure(4.5 * max(len(names), 1), 0.28 * len(found) + 1.6)
    panels = figure.subplots(1, max(len(names), 1), sharey=True, squeeze=False)[0]
    labels = [f"{row['model']}, {row['phase']}, {row['batch']}" for row in found]
    for axes, name in zip(panels, names, strict=False):
        mine = [(i, row[f"ratio_{name}"]) for i, row in enumerate(found) if f"ratio_{name}" in row]
        for i, (low, middle, high) in mine:
            tint = report.TINTS[0] if middle <= 1 else report.TINTS[-1]
            axes.plot([low, high], [i, i], color=tint, linewidth=1.2)
            axes.plot([middle], [i], "o", color=tint, markersize=5)
        axes.axvline(1, color=report.INK, linewidth=0.8)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        report.tidy(axes, f"stowplan / {name}", "")
    return figure


def columns(rows: Sequence[Row]) -> list[report.Column]:
    """Columns of the Markdown table."""
    column = report.Column
    names = [name for name in (*HOST, *GPU, OURS) if any(f"seconds_{name}" in row for row in rows)]
    return [
        column("network", "model"),
        column("phase", "phase"),
        column("batch", "batch"),
        *(column(f"{name}: s", f"seconds_{name}", report.seconds) for name in names),
        *(column(f"stowplan / {name}", f"ratio_{name}", _spread) for name in names if name != OURS),
        column("", "note"),
    ]


def _spread(quartiles: Sequence[float]) -> str:
    low, middle, high = quartiles
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


@command(limit=900, quick_limit=30)
def main(study: Study) -> None:
    """Compare the time of one step through the pool with that through others (Figure 3)."""
    rows = study.run("time", lambda cell: measure(study, cell), SMALLEST)
    note = "Medians, with the quartiles of the ratios of steps in the same round."
    report.write_table(rows, columns(rows), study.out / "time", "Time of one step", note)
    report.save(draw(rows), study.out / "time")


if __name__ == "__main__":
    main()
