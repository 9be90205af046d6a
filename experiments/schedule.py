"""Steps with a lower live peak: ``python -m experiments.schedule``.

Three tables and a picture, for training on the host; on the simulated device the tables' bytes, and no times:

==================  ====================================================================================================
schedule            lean steps: their live peak beside that of Chainer's steps, the pool's arena, and their time
schedule_budgets    steps under budgets, shares of Chainer's live peak, down to the least: peak and time, predicted by
                    the schedule and measured
schedule_bits       whether ten steps give the same parameters, statistics, optimizer's state and random stream
==================  ====================================================================================================

Live peaks are those of the planned part; the retained part (parameters, statistics, the optimizer's state) stands apart
and has to be added. The lean peak of a step that is too large for the machine is predicted from profiles of batches of
2 and 4 (`measures.recordings`). Steps are measured in a process of their own, in turns with Chainer's steps: times are
medians of ratios to Chainer's step in the same round, with their standard error (`measures.scheduled_steps`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import click
import numpy as np

from stowplan.planning import make_plan
from stowplan.scheduling import lean, simulate, solve

from .measures import output
from .measures.apart import ONE_HEAP, CannotRunError, ask
from .measures.kept import Row
from .measures.medians import standard_error
from .measures.paired_timing import ratios
from .measures.recordings import Step, affordable, step_of
from .measures.runner import BATCH, NETWORK, RECORDED, SIMULATED, Cell, Runner, command, title_of
from .measures.scheduled_steps import CHAINER, LEAN, POOLED, SCHEDULED, Task
from .measures.step_graphs import curve_of, predicted_profile, recorded_graph

SHARES = (0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.06, 0.0)
"""Budgets, of Chainer's live peak; 0: the least that is found."""
QUICK_SHARES = (0.4, 0.0)
BITS_AT = 0.4
BITS_STEPS = 3 * 4 * 10
"""Steps that compare bits: three optimizers; plain, lean, under the budget, and again if that cannot be kept."""
SMALLEST = 2
"""A batch size that every machine should have time for, run in addition to the paper's."""
ROUNDS, QUICK_ROUNDS = 200, 3
CONTESTANTS = 0.3
"""Share of the free memory that one of three contestants may take."""
ALIGNMENT = 64
"""Bytes; addresses are multiples of it, as in a `stowplan.NumpyPool`."""


def measure_lean(runner: Runner, cell: Cell) -> Row:
    """Find a row of the first table; bytes and ratios.

    Raises
    ------
    CannotRunError
        The step can be neither run nor predicted.
    """
    step = step_of(runner, _in_reach(cell))
    plain = step.profile.planned_peak
    task = _task(runner, cell, None)
    row: Row = {"recorded": affordable(runner, cell, task.least_steps, CONTESTANTS)}
    if row["recorded"]:
        found = apart("turns", task)
        graph = recorded_graph(runner, cell)
        peak, arena = found["peak"], found["arena"]
        peaks = _peaks(peak, simulate(graph, lean(graph)).peak, step)
        row |= {**_times(found["turns"], time=LEAN, pool=POOLED), "operators": len(graph)}
    else:
        profile = predicted_profile(runner, cell)
        peak, arena = profile.planned_peak, make_plan(profile, alignment=ALIGNMENT).arena_bytes
        peaks = _ratios(peak, step)
    return row | {"retained": step.retained, "plain": plain, "lean": peak, "arena": arena, **peaks}


def measure_budget(runner: Runner, share: float, cell: Cell) -> Row:
    """Find a row of the second table; bytes and ratios.

    Raises
    ------
    CannotRunError
        Lean steps keep to the budget, or no schedule that is found does.
    """
    step = step_of(runner, _in_reach(cell))
    plain = step.profile.planned_peak
    shape = curve_of(runner, cell)
    free, least = shape["points"][0], shape["points"][-1]
    budget = int(share * plain)
    if budget >= free[0]:
        raise CannotRunError(f"lean steps keep to it: {free[0] / plain:.3f}")
    if 0 < budget < least[0]:
        raise CannotRunError(f"below the least found: {least[0] / plain:.3f}")
    row: Row = {"share": share, "retained": step.retained, "plain": plain, "bound": shape["bound"] / plain}
    budget = max(budget, least[0])
    task = _task(runner, cell, budget)
    row["recorded"] = affordable(runner, cell, task.least_steps, CONTESTANTS)
    if not row["recorded"]:
        graph = recorded_graph(runner, cell)
        solution = solve.schedule(graph, budget)
        extra = solution.extra_seconds / float(graph.seconds.sum())
        row |= {"predicted": solution.peak, "predicted_ratio": solution.peak / plain}
        return row if cell.device == "gpu" else row | {"predicted_time": 1 + extra}
    found = apart("turns", task)
    row |= _times_of(found)
    row |= {key: found[key] for key in ("budget", "recomputed", "solver", "solving_seconds")}
    row |= {"peak": found["peak"], "predicted_ratio": found["predicted"] / plain}
    return row | _peaks(found["peak"], found["predicted"], step)


def _peaks(peak: int, predicted: int, step: Step) -> Row:
    """Return a peak and its prediction, beside those of Chainer's step."""
    return {**_ratios(peak, step), "predicted": predicted, "deviation": predicted / peak - 1}


def _ratios(peak: int, step: Step) -> Row:
    plain = step.profile.planned_peak
    return {"ratio": peak / plain, "ratio_in_all": (peak + step.retained) / (plain + step.retained)}


def _times_of(found: Row) -> Row:
    """Return what a scheduled step takes, and what its schedule predicts; nothing where no turns were taken."""
    turns = found["turns"]
    if not turns:
        return {}
    # What a schedule adds comes on top of the lean step, and is in seconds: those of the recording and of the turns
    # may differ by what else the machine does.
    lean_time = float(np.median(ratios(turns, LEAN, CHAINER)))
    predicted = lean_time * (1 + found["extra_seconds"] / found["seconds"])
    row = _times(turns, time=SCHEDULED)
    deviation = predicted / row["time"] - 1
    return row | {"lean_time": lean_time, "predicted_time": predicted, "time_deviation": deviation}


def measure_bits(runner: Runner, cell: Cell) -> Row:
    """Find a row of the third table."""
    plain = step_of(runner, _in_reach(cell)).profile.planned_peak
    task = _task(runner, cell, int(BITS_AT * plain))
    patient = runner if runner.quick else replace(runner, limit=math.inf)
    if not affordable(patient, cell, BITS_STEPS, CONTESTANTS):
        raise CannotRunError("takes longer than the limit, or more memory than there is")
    return {
        f"{optimizer} {what}": value
        for optimizer, row in apart("bits", task).items()
        for what, value in row.items()
    }


def _task(runner: Runner, cell: Cell, budget: int | None) -> Task:
    rounds = QUICK_ROUNDS if runner.quick else ROUNDS
    return Task(cell.model.name, cell.batch, runner.data.seed, budget, rounds, runner.limit, cell.device)


def _in_reach(cell: Cell) -> Cell:
    """Return the cell: of the host, or of the simulated device, where no times are taken."""
    if title_of(cell.device) not in ("cpu", SIMULATED):
        raise CannotRunError("measured on the host; make gpu-test trains under a budget on a device")
    return cell


def _times(turns: list[dict[str, float]], **contestants: str) -> Row:
    """Return contestants' times over Chainer's, by key, and the turns; nothing where no turns were taken."""
    if not turns:
        return {}
    row: Row = {}
    for key, name in contestants.items():
        found = ratios(turns, name, CHAINER)
        row |= {key: float(np.median(found)), f"{key}_error": standard_error(found)}
    return row | {"rounds": len(turns), "seconds": float(np.median([turn[CHAINER] for turn in turns]))}


def apart(what: str, task: Task) -> Row:
    """Run a function of `measures.scheduled_steps` in a process of its own; return what it returns."""
    asked = {"run": what, **asdict(task)}
    found: Row = ask("experiments.measures.scheduled_steps:perform", asked, ONE_HEAP)
    return found


# --- tables and the picture -------------------------------------------------------------------------------------------


RETAINED = output.Column("retained", "retained", output.mib)
DEVIATION = output.Column("deviation", "deviation", lambda share: output.percent(share, 2))
TIME = (
    output.Column("time / Chainer's", "time", "{:.3f}".format),
    output.Column("standard error", "time_error", "{:.3f}".format),
)
IN_ALL = output.Column("with retained", "ratio_in_all", "{:.3f}".format)
NOTED = output.Column("", "note")
LEAN_COLUMNS = [
    *(NETWORK, BATCH, RECORDED, RETAINED),
    output.Column("Chainer", "plain", output.mib),
    output.Column("lean", "lean", output.mib),
    output.Column("lean / Chainer", "ratio", "{:.3f}".format),
    IN_ALL,
    output.Column("arena", "arena", output.mib),
    output.Column("predicted", "predicted", output.mib),
    *(DEVIATION, *TIME),
    output.Column("through the pool", "pool", "{:.3f}".format),
    output.Column("standard error ", "pool_error", "{:.3f}".format),
    output.Column("rounds", "rounds"),
    NOTED,
]
BUDGET_COLUMNS = [
    *(NETWORK, BATCH, RECORDED),
    output.Column("budget / Chainer's peak", "share", lambda share: f"{share:.2f}" if share else "the least"),
    RETAINED,
    output.Column("peak", "peak", output.mib),
    output.Column("peak / Chainer's", "ratio", "{:.3f}".format),
    IN_ALL,
    output.Column("predicted", "predicted_ratio", "{:.3f}".format),
    DEVIATION,
    output.Column("no schedule below", "bound", "{:.3f}".format),
    *TIME,
    output.Column("predicted ", "predicted_time", "{:.3f}".format),
    output.Column("deviation ", "time_deviation", output.percent),
    output.Column("operators again", "recomputed"),
    NOTED,
]


def bits_columns(rows: Sequence[Row]) -> list[output.Column]:
    """Columns of the third table."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    column = output.Column
    found = [NETWORK, BATCH]
    for key in keys:
        if key.endswith((LEAN, SCHEDULED)):
            found.append(column(key, key, lambda same: "equal" if same else "DIFFERENT"))
        elif key.endswith("recomputed"):
            found.append(column(f"{key.split()[0]}: operators again", key))
    return [*found, NOTED]


def draw(curves: Sequence[tuple[Row, Row]], measured: Sequence[Row]) -> Any:
    """Draw time over memory, one panel for each network.

    Parameters
    ----------
    curves
        (row of the first table, what `curve_of` returned for it).
    measured
        Rows of the second table.
    """
    names = list(dict.fromkeys(row["model"] for row, _ in curves))
    figure, panels = output.grid(len(names), 2.9)
    for axes, name in zip(panels, names, strict=True):
        for tint, (row, shape) in zip(
            output.TINTS, (one for one in curves if one[0]["model"] == name), strict=False
        ):
            x = [peak / row["plain"] for peak, _ in shape["points"]]
            y = [1 + extra / shape["seconds"] for _, extra in shape["points"]]
            axes.plot(x, y, "-", color=tint, linewidth=1.4, label=f"batch {row['batch']}")
            points = [
                (one["ratio"], one["time"])
                for one in measured
                if (one["model"], one["batch"]) == (name, row["batch"]) and "time" in one
            ]
            if "time" in row:
                points.append((row["ratio"], row["time"]))
            axes.plot([x for x, _ in points], [y for _, y in points], "o", color=tint, markersize=4)
        axes.axhline(1, color=output.INK, linewidth=0.6)
        axes.set_xlim(0, 1)
        axes.set_xlabel("live peak / Chainer's", color=output.INK)
        axes.legend(fontsize=7, frameon=False)
        output.tidy(axes, name, "time / Chainer's")
    return figure


@command(limit=300, quick_limit=60)
@click.option(
    "--budgets",
    multiple=True,
    type=click.FloatRange(0, 1),
    help="A budget, as a share of the live peak of Chainer's own steps; 0: the least found. Repeatable.",
)
def main(runner: Runner, budgets: tuple[float, ...]) -> None:
    """Show the live peak and the time of scheduled steps beside those of Chainer's own."""
    runner = replace(runner, phases=("training",))
    smaller = () if runner.batches else (SMALLEST,)
    rows = runner.run("schedule", partial(measure_lean, runner), *smaller)
    title = "Lean steps: live peak and time beside Chainer's own"
    note = (
        "MiB, of the planned part; with retained: of all that is alive. Batch sizes beside 2 are the paper's; a "
        "predicted row was recorded at batches of 2 and 4. Time: median ratio to Chainer's step in the same round."
    )
    output.write_table(rows, LEAN_COLUMNS, runner.out / "schedule", title, note)

    found: list[Row] = []
    for share in budgets or (QUICK_SHARES if runner.quick else SHARES):
        name = f"schedule/{share:g}"
        found += [
            {"share": share, **row}
            for row in runner.run(name, partial(measure_budget, runner, share), *smaller)
        ]
    order = {(row["device"], row["model"], row["batch"]): i for i, row in enumerate(rows)}
    found.sort(key=lambda row: (order[row["device"], row["model"], row["batch"]], -row["share"]))
    title = "Steps under a budget: live peak and time beside Chainer's own"
    output.write_table(found, BUDGET_COLUMNS, runner.out / "schedule_budgets", title, note)

    smallest = replace(runner, quick=True)
    bits = smallest.run("schedule_bits", partial(measure_bits, runner), *smaller)
    title = "Ten steps lean and under a budget, and ten of Chainer's own: bit by bit"
    note = (
        f"Parameters, statistics, the optimizer's state and the random stream. The budget is {BITS_AT} of Chainer's "
        "live peak, or the least that is found."
    )
    output.write_table(bits, bits_columns(bits), runner.out / "schedule_bits", title, note)
    run = [row for row in rows if row.get("recorded") and row["device"] == "cpu"]
    cells = {(cell.model.title, cell.batch): cell for cell in runner.cells(*smaller) if cell.device == "cpu"}
    curves = [(row, curve_of(runner, cells[row["model"], row["batch"]])) for row in run]
    output.save(draw(curves, found), runner.out / "schedule")
    wrong = [row["model"] for row in bits for key, value in row.items() if value is False and key != "note"]
    if wrong:
        raise click.ClickException(f"bits differ: {', '.join(dict.fromkeys(wrong))}")


if __name__ == "__main__":
    main()
