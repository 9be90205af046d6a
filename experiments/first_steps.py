"""What each of the first steps has alive: ``python -m experiments.first_steps``, plain, lean, and under a budget.

All arrays that are alive count, parameters and state included, as a `NumpyRecorder` sees them; the data that the
program has loaded before does not. A lean training's first step runs as Chainer runs it (`Scheduler(watch=True)`), so
a program that fits from the second step on may not fit the first; with ``watch=False`` the first step is lean, too,
where the program allows it.

The budgets lie a share of the way from the least peak of a schedule to that of lean steps. The first two steps have no
schedule yet, and keep to a budget as well as they can without one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track

from stowplan import NumpyRecorder
from stowplan.compat import enable_chainer
from stowplan.errors import BudgetError, ScheduleError

from .measures import output
from .measures.data import Data
from .measures.workload import Workload
from .models import MODELS, VGG

STEPS = 5
LEAN = "watch=False"
SHARES = {f"watch=False, budget {share}": share for share in (0.75, 0.5, 0.25)}
WAYS: dict[str, dict[str, Any] | None] = {
    "Chainer": None,
    "lean": {},
    LEAN: {"watch": False},
    **{way: {"watch": False} for way in SHARES},  # and the budget
}
Training = tuple[Any, Callable[[], None]]
"""The optimizers, and the step."""


# Title, network and batch; DCGAN has one graph for both losses, or a graph for each.
NETWORKS = {
    "alexnet": ("AlexNet, batch 8", "alexnet", 8),
    "googlenet": ("GoogLeNet, batch 8", "googlenet", 8),
    "resnet50": ("ResNet-50, batch 2", "resnet50", 2),
    "vgg": ("VGG-16 with batch normalization, 32 pixels, batch 16", "vgg", 16),
    "transformer": ("Transformer, batch 8", "transformer", 8),
    "dcgan": ("DCGAN, one graph for two losses, batch 16", "dcgan", 16),
    "dcgan-two": ("DCGAN, a graph for each loss, batch 16", "dcgan", 16),
}


def made(name: str) -> Training:
    """Make a network of `NETWORKS`."""
    _, network, batch = NETWORKS[name]
    if network == "dcgan":
        from .models.dcgan import Dcgan

        gan = Dcgan(batch, one_graph=name == network, seed=0)
        return gan.optimizers, gan.step
    work = Workload(VGG if network == VGG.name else MODELS[network], "training", batch, Data())
    return work.optimizer, work.step


def peaks_of(make: Callable[[], Training], way: dict[str, Any] | None, steps: int) -> list[int]:
    """Return the bytes alive at the most in each step.

    Raises
    ------
    ScheduleError
        The program does what ``watch=False`` excludes.
    """
    from stowplan.chainer import Scheduler

    gc.collect()
    recorder, peaks = NumpyRecorder(), []
    with recorder:
        optimizers, step = make()
        scheduler = None if way is None else Scheduler(optimizers, **way)
        own = own_bytes(optimizers if isinstance(optimizers, list) else [optimizers])
        for _ in range(steps):
            with nullcontext() if scheduler is None else scheduler.step(), recorder.step():
                step()
            profile = recorder.whole()
            if not peaks:
                data = int(profile.alive[0] - profile.size[0]) - own
            peaks.append((profile.live_peak or 0) - data)
    return peaks


def own_bytes(optimizers: list[Any]) -> int:
    """Return the bytes of parameters, statistics, and the gradients that Chainer makes with the parameters."""
    from chainer.serializers import DictionarySerializer

    total = 0
    for optimizer in optimizers:
        kept = DictionarySerializer()
        kept.save(optimizer.target)
        arrays = [*kept.target.values()]
        arrays += [param.grad for param in optimizer.target.params() if param.array is not None]
        total += sum(array.nbytes for array in arrays if array is not None)
    return total


def least_peak(make: Callable[[], Training]) -> int:
    """Return the bytes that a schedule needs at least, from the third step on."""
    try:
        peaks_of(make, {"watch": False, "budget": 0}, 3)
    except BudgetError as error:
        return error.least
    return 0


@click.command()
@output.out
@output.chosen("--model", "models", NETWORKS)
def main(out: Path, models: tuple[str, ...]) -> None:
    """Measure what each of the first steps has alive, and write a table."""
    enable_chainer()
    cells = [(name, way) for name in models or NETWORKS for way in WAYS]
    rows = []
    for name, way in track(cells, "first steps", console=Console(stderr=True)):
        make, title = partial(made, name), NETWORKS[name][0]
        if way == LEAN:
            lean = least = 0
        row: dict[str, Any] = {"device": "cpu", "network": title, "steps": way}
        try:
            options = WAYS[way]
            if options and way in SHARES and lean:
                row["budget"] = int(least + SHARES[way] * (lean - least))
                options = options | {"budget": row["budget"]}
            peaks = peaks_of(make, options, STEPS)
            if way == LEAN:
                lean, least = peaks[-1], least_peak(make)
            rows.append(row | {f"step {number}": peak for number, peak in enumerate(peaks, 1)})
        except (BudgetError, ScheduleError) as error:
            rows.append(row | {"note": f"refused: {str(error).partition(';')[0]}"})
    columns = [output.Column("network", "network"), output.Column("steps", "steps")]
    columns += [output.Column("budget, MiB", "budget", output.mib)]
    columns += [output.Column(f"step {n}, MiB", f"step {n}", output.mib) for n in range(1, STEPS + 1)]
    note = "Most bytes alive in each step, parameters and state included, the program's data not."
    output.write_table(rows, columns, out / "first_steps", "What the first steps have alive", note)
    output.show(out / "first_steps.md")


if __name__ == "__main__":
    main()
