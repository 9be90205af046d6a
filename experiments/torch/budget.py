"""Train models within budgets, beside PyTorch's own ways to save memory: ``python -m experiments.torch.budget``.

Each model is trained as it is, by `stowplan.torch.schedule` within ten budgets, from the bytes that the plain step
takes down to the least that is found, half of them among these; with `torch.utils.checkpoint` around its blocks; and by
``torch.compile`` under several settings of ``activation_memory_budget`` (backend ``aot_eager``: the same kernels, its
partitioner). Six of the models need ``pip install transformers``.

Peaks are as in `training`. Seconds are the process's CPU time of a step, on one thread, the least of several in turn
with the plain step. Each row is in a file as soon as it is measured; a run that was cut goes on from there.

The resident set is that of a process of its own, which trains some steps, plainly or within half of the peak with a
`stowplan.TorchPool`: the most in its life, planning included, less what it had when the model was made.

Exit status 1 if a parameter differs from the plain run's, a peak is above its budget or not as predicted to 1 %, or
something failed.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path

import click
import torch

from stowplan import TorchPool
from stowplan.torch import Meter, schedule

from ..measures import output
from ..measures.apart import ONE_THREAD, ask
from ..measures.kept import Row
from ..measures.usage import of_this_process
from .kept import Kept
from .metered import partitioned
from .models import MODELS, of_models, rows_of
from .training import Model, Original, optimizer_of, peak_of, plain_step, seconds_of, trained

BUDGETS = 9
SETTINGS = (1.0, 0.5, 0.2, 0.05, 0.0)
PLACE = f"{__package__}.budget:most_resident"

TITLE = "Models of PyTorch trained within budgets"
NOTE = (
    "Peaks are shares of the plain step's, beside what is resident (parameters, buffers, momentum, the batch); times "
    "are CPU times over the plain step's. *free*: stowplan without a budget below the plain peak; *half*: within "
    "half of the peak; *least*: the least peak found. *torch*: the least peak that "
    "`activation_memory_budget` gave, over five settings; *beside it*: stowplan's time at no higher a peak. "
    "*checkpoint*: `torch.utils.checkpoint` around each block. *resident set*: the most of a process in its life, "
    "planning included, less what it had when the model was made; *half's*: within half of the peak, with a "
    "`stowplan.TorchPool`. *right*: in all ten budgets parameters equal to the bit "
    "after three steps, the peak within the budget, and as predicted to 1 %."
)
SHARE = "{:.3f}".format


def _point(key: str) -> tuple[output.Column, output.Column]:
    """Return the columns of a peak, and of the time there."""
    return output.Column(key, key, SHARE), output.Column("its time", f"{key}_seconds", SHARE)


COLUMNS = [
    output.Column("model", "model"),
    output.Column("resident MiB", "resident", output.mib),
    output.Column("plain MiB", "plain", output.mib),
    output.Column("free", "free", SHARE),
    *(*_point("half"), *_point("least"), *_point("torch")),
    output.Column("beside it: time", "beside_seconds", SHARE),
    *_point("checkpoint"),
    output.Column("planning s", "planning", "{:.1f}".format),
    output.Column("resident set MiB", "most_resident", output.mib),
    output.Column("half's MiB", "half_most_resident", output.mib),
    output.Column("right", "right"),
]


def measure(model: Model, kept: Kept) -> None:
    """Make the rows of one model that are not there yet."""
    original = Original(model)
    plain, batch = original.plain, original.batch

    def bounds() -> Row:
        resident = original.scheduled(None)[1].plan(*batch).resident
        least = original.least() - resident
        return {"peak": peak_of(plain, batch), "seconds": 1.0, "resident": resident, "least": least}

    def ours(budget: int) -> Row:
        began = time.perf_counter()
        own, training = original.scheduled(budget + resident)
        stats = training.plan(*batch)
        planning = time.perf_counter() - began
        trained(training.step, batch)
        return {
            "identical": original.same(own),
            "peak": peak_of(training.step, batch),
            "predicted": stats.peak - stats.resident,
            "seconds": seconds_of(training.step, plain, batch),
            "predicted_seconds": 1 + stats.extra,
            "planning": planning,
        }

    def around_blocks() -> Row:
        step = plain_step(original.with_checkpoints(), model.loss)
        trained(step, batch)
        return {"peak": peak_of(step, batch), "seconds": seconds_of(step, plain, batch)}

    def theirs(setting: float) -> Row:
        meters: list[Meter] = []
        torch._dynamo.reset()
        with torch._functorch.config.patch(activation_memory_budget=setting):
            compiled = torch.compile(model.loss, backend=partitioned(meters))
            step = plain_step(original.copy(), compiled, meters)
            trained(step, batch)
            return {"peak": peak_of(step, batch, meters), "seconds": seconds_of(step, plain, batch)}

    first = kept.add("plain", None, bounds)
    resident, before, floor = first["resident"], first["peak"], first["least"]
    half = max(floor, before // 2)
    for way, budget in (("plain process", None), ("half's process", half + resident)):
        asked = {"name": kept.name, "budget": budget}
        kept.add(way, None, lambda asked=asked: {"resident_set": ask(PLACE, asked, ONE_THREAD)})
    budgets = {before + (floor - before) * k // (BUDGETS - 1) for k in range(BUDGETS)}
    for budget in sorted(budgets | {half}, reverse=True):
        kept.add("stowplan", budget, functools.partial(ours, budget))
    kept.add("checkpoint", None, around_blocks)
    for setting in SETTINGS:
        kept.add("torch", setting, functools.partial(theirs, setting))


def most_resident(name: str, budget: int | None) -> int:
    """Train a model, plainly or within a budget with a pool; return the bytes that this process had resident for it."""
    model = MODELS[name]
    torch.manual_seed(0)
    own, batch = model.build().train(), model.batch()
    with torch.no_grad():
        model.loss(own, *batch)  # what a first call sets up, as the plain step does in `Original`
    before = of_this_process("VmRSS")
    step = plain_step(own, model.loss)
    if budget is not None:
        step = schedule(own, optimizer_of(own), model.loss, budget=budget, pool=TorchPool()).step
    trained(step, batch)
    return of_this_process("VmHWM") - before


def wrong(row: Row) -> list[str]:
    """Return what is wrong with a row of stowplan's."""
    if row["way"] != "stowplan":
        return []
    found = [] if row["identical"] else ["parameters differ"]
    if row["peak"] > row["setting"]:
        found.append(f"peak {row['peak']} is above the budget {row['setting']}")
    if abs(row["peak"] - row["predicted"]) > 0.01 * row["peak"]:
        found.append(f"peak {row['peak']} was predicted to be {row['predicted']}")
    return found


def summary(name: str, rows: list[Row]) -> Row:
    """Return what the table shows of a model: PyTorch's best point, and ours beside it; {} until all rows are there."""
    if sum(row["way"] == "torch" for row in rows) < len(SETTINGS):
        return {}
    plain = rows[0]["peak"]
    ours = [row for row in rows if row["way"] == "stowplan"]
    theirs = min((row for row in rows if row["way"] == "torch"), key=lambda row: row["peak"])
    beside = min(
        (row for row in ours if row["peak"] <= theirs["peak"]), key=lambda row: row["seconds"], default={}
    )
    half = max((row for row in ours if row["peak"] <= plain / 2), key=lambda row: row["peak"], default={})
    around, whole, half_whole = (
        next(row for row in rows if row["way"] == way)
        for way in ("checkpoint", "plain process", "half's process")
    )
    found: Row = {"device": "cpu", "model": name, "resident": rows[0]["resident"], "plain": plain}
    points = {"free": ours[0], "half": half, "least": ours[-1], "torch": theirs, "beside": beside}
    for key, row in {**points, "checkpoint": around}.items():
        found |= {key: row["peak"] / plain, f"{key}_seconds": row["seconds"]} if row else {}
    return found | {
        "planning": max(row["planning"] for row in ours),
        "most_resident": whole["resident_set"],
        "half_most_resident": half_whole["resident_set"],
        "right": "yes" if not any(wrong(row) for row in rows) else "NO",
    }


@click.command()
@of_models
def main(chosen: tuple[str, ...], out: Path) -> None:
    """Train models of PyTorch within budgets of bytes."""
    kept = rows_of(chosen, out / "torch_budget", measure)
    rows = [{"device": "cpu", "model": name} | row for name, found in kept.items() for row in found]
    shown = [row for name, found in kept.items() if (row := summary(name, found))]
    output.write_table(shown, COLUMNS, out / "torch_budget", TITLE, NOTE, ("torch", "transformers"))
    output.write_csv(rows, out / "torch_budget.csv")
    output.fail(f"{row['model']}: {what}" for row in rows for what in wrong(row))


if __name__ == "__main__":
    main()
