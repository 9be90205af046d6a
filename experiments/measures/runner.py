"""Run a figure's command: its options, its cells, and the files that keep what they found.

A cell is one entry of a figure: a device, a network, a phase and a batch size. Its result is one JSON file, written
atomically, so a command that was interrupted goes on where it stopped, and a finished cell is not run again::

    build/experiments/memory/cells/cpu-googlenet-training-32.json      {"study": {...}, "row": {...}}

The file names the options under ``"study"``; a cell that was run with other ones (other data, another limit) is run
again. A cell that needs a GPU or memory that the machine does not have says so in its row, and is tried again by the
next command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stowplan.compat import enable_chainer
from stowplan.errors import StowplanError
from stowplan.prediction import available

from ..models import MODELS, Model
from . import kept, output
from .apart import CannotRunError
from .data import Data
from .kept import Row
from .workload import PHASES, Phase

DEVICES = ("cpu", "gpu")
NO_GPU = "no CUDA device on this machine"
NO_TIMES = "times are not measured: those of the simulated device say nothing of a real one"
SIMULATED = "simulated device"
SIMULATED_NAMES = ("simulated", "simhip")
"""What the names of simulated devices begin with."""


NETWORK, BATCH = output.Column("network", "model"), output.Column("batch", "batch")
CELL = (NETWORK, output.Column("phase", "phase"), BATCH)
RECORDED = output.Column("", "recorded", lambda recorded: "" if recorded else "predicted")


@dataclass(frozen=True)
class Cell:
    """One entry of a figure."""

    device: str
    model: Model
    phase: Phase
    batch: int

    @property
    def name(self) -> str:
        """For files and messages."""
        return f"{self.device}-{self.model.name}-{self.phase}-{self.batch}"


@dataclass(frozen=True)
class Runner:
    """Runs the cells that a command was asked for.

    Attributes
    ----------
    models, phases, devices
        What the cells are of.
    batches
        Batch sizes for training; if empty, the models' own.
    quick
        Run the smallest batch sizes only.
    limit
        Seconds that the steps of one cell may take; a cell that would take longer is predicted or left out.
    data
        What the networks read.
    out
        Folder for all files written.
    """

    models: tuple[Model, ...]
    phases: tuple[Phase, ...]
    devices: tuple[str, ...]
    batches: tuple[int, ...]
    quick: bool
    limit: float
    data: Data
    out: Path

    def cells(self, *smaller: int) -> Iterator[Cell]:
        """Yield the cells of a figure; for training also with batches that are smaller than the paper's."""
        for device in self.devices:
            for phase in self.phases:
                for model in self.models:
                    sizes = (1,) if phase == "inference" else self.batches or (*smaller, *model.batches)
                    for batch in sizes[:1] if self.quick else sizes:
                        yield Cell(device, model, phase, batch)

    def run(self, figure: str, measure: Callable[[Cell], Row], *smaller: int, **options: Any) -> list[Row]:
        """Run the cells of a figure that are not finished for these `options`; return the rows of all."""
        rows = []
        with progress_bar() as progress:
            cells = list(self.cells(*smaller))
            bar = progress.add_task(figure, total=len(cells))
            study = {"quick": self.quick, "limit": self.limit, **options}
            for cell in cells:
                name = f"{figure}/cells/{cell.name}"
                progress.update(bar, description=f"{figure}: {cell.name}")
                about: Row = {"device": title_of(cell.device), "model": cell.model.title}
                about |= {"phase": cell.phase, "batch": cell.batch}
                try:
                    if cell.device == "gpu" and not has_gpu():
                        raise CannotRunError(NO_GPU)
                    rows.append(about | self.finished(name, partial(measure, cell), **study))
                except (CannotRunError, MemoryError) as why:
                    rows.append(about | {"note": str(why) or "does not fit this machine's memory"})
                progress.advance(bar)
        return rows

    def finished(self, name: str, find: Callable[[], Row], **options: Any) -> Row:
        """Return the row kept under this name for the same seed and `options`, or find it and keep it."""
        return kept.finished(self.out / f"{name}.json", {"seed": self.data.seed, **options}, find)

    def saved(self, name: str, make: Callable[[], tuple[Any, Row]]) -> tuple[Path, Row]:
        """Return the archive kept under this name and the row beside it, or make and save both."""
        path = self.out / f"{name}.npz"

        def find() -> Row:
            found, row = make()
            path.parent.mkdir(parents=True, exist_ok=True)
            found.save(path)
            return row

        return path, self.finished(name, find)

    def known(self, name: str, **options: Any) -> Row | None:
        """Return the row kept under this name for the same seed and `options`; None if there is none."""
        return kept.known(self.out / f"{name}.json", {"seed": self.data.seed, **options})


def progress_bar() -> Progress:
    """Return a display of tasks on standard error."""
    columns = (TextColumn("{task.description:<60}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def has_gpu() -> bool:
    """Whether CuPy is there, and a device."""
    try:
        from cupy.cuda import runtime

        return bool(runtime.getDeviceCount() > 0)
    except (ImportError, RuntimeError):
        return False


def is_simulated() -> bool:
    """Whether CuPy's current device is the simulated one: bytes are exact there, times say nothing."""
    from cupy.cuda import runtime

    name: str = runtime.getDeviceProperties(runtime.getDevice())["name"].decode()
    return name.startswith(SIMULATED_NAMES)


def title_of(device: str) -> str:
    """Return a device of `DEVICES` as tables have it."""
    return SIMULATED if device == "gpu" and has_gpu() and is_simulated() else device


def available_bytes(device: str) -> int:
    """Bytes of memory that are free now."""
    if device == "gpu":
        import cupy

        return int(cupy.cuda.runtime.memGetInfo()[0])
    return available()[0]


_OPTIONS = (
    output.chosen("--phase", "phases", PHASES),
    output.chosen("--device", "devices", DEVICES),
    click.option(
        "--batch", "batches", multiple=True, type=click.IntRange(1), help="For training; repeatable."
    ),
    click.option("--quick", is_flag=True, help="The smallest sizes: minutes instead of hours."),
    click.option(
        "--limit",
        type=click.FloatRange(min=0),
        help="Seconds for the steps of one cell; what takes longer is predicted, or left out.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True),
    output.out,
)


def command(
    limit: float, quick_limit: float, models: Mapping[str, Model] = MODELS
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that gets a `Runner`, and its other options by name.

    Parameters
    ----------
    limit, quick_limit
        Defaults of `Runner.limit`, without and with ``--quick``.
    models
        Networks to choose from.
    """
    default = limit

    def decorate(figure: Callable[..., None]) -> click.Command:
        @wraps(figure)
        def run(
            quick: bool,
            limit: float | None,
            chosen: tuple[str, ...],
            phases: tuple[Phase, ...],
            devices: tuple[str, ...],
            batches: tuple[int, ...],
            seed: int,
            out: Path,
            **options: Any,
        ) -> None:
            seconds = limit if limit is not None else quick_limit if quick else default
            networks = tuple(models[name] for name in chosen or models)
            try:  # before any long work
                enable_chainer()
            except StowplanError as error:
                raise click.UsageError(str(error)) from error
            of = networks, phases or PHASES, devices or DEVICES, batches
            figure(Runner(*of, quick, seconds, Data(seed), out), **options)

        for option in reversed((output.chosen("--model", "chosen", models), *_OPTIONS)):
            run = option(run)
        return click.command(help=(figure.__doc__ or "").split("\n", maxsplit=1)[0])(run)

    return decorate
