"""Step graphs of the networks' steps, and their lean profiles: recorded, or predicted from batches of 2 and 4.

They are kept as files, as the cells are, and the next command reads them.
"""

from __future__ import annotations

from functools import partial

from stowplan import Profile
from stowplan.scheduling import StepGraph, solve

from .recordings import SMALL, affordable, predict, record, without_small
from .runner import CannotRunError, Cell, Row, Runner
from .scheduled_steps import ScheduledWorkload

POINTS = 12
"""Number of points of a curve."""
LIMIT, QUICK_LIMIT = 120.0, 20.0
"""Most seconds for a curve, without and with ``--quick``."""
GRAPH_STEPS = 8
"""Steps that recording a graph takes as long as: one of Chainer's, one that runs every function twice, two timed."""


def recorded_graph(runner: Runner, cell: Cell) -> StepGraph:
    """Record a cell's step graph, or read the one kept."""

    def record_cell() -> tuple[StepGraph, Row]:
        graph = _workload(runner, cell).record_graph()
        return graph, {"operators": len(graph)}

    return StepGraph.load(runner.saved(f"schedule/graphs/{cell.name}", record_cell)[0])


def recorded_profile(runner: Runner, cell: Cell) -> Profile:
    """Record a cell's lean step, or read the recording kept."""

    def record_cell() -> tuple[Profile, Row]:
        work = _workload(runner, cell)
        work.schedule()
        work.step()
        profile = without_small(record(work)[0])
        return profile, {"blocks": len(profile)}

    return Profile.load(runner.saved(f"schedule/lean/{cell.name}", record_cell)[0])


def _workload(runner: Runner, cell: Cell) -> ScheduledWorkload:
    return ScheduledWorkload(cell.model, cell.phase, cell.batch, runner.data, cell.device == "gpu")


def predicted_profile(runner: Runner, cell: Cell) -> Profile:
    """Predict the profile of a cell's lean step from those of small batches."""
    found = predict(cell, partial(recorded_profile, runner))
    if found is None:
        raise CannotRunError("too large to be run here, and not predicted by small batches")
    return found


def curve_of(runner: Runner, cell: Cell) -> Row:
    """Find how little memory schedules can reach, and at what cost in time.

    Returns
    -------
    dict
        ``points``: (bytes, extra seconds), from lean to the least peak that is found. ``seconds``: of all operators.
        ``bound``: no schedule has a smaller peak.

    Raises
    ------
    CannotRunError
        The step is too large to be run.
    """
    if cell.batch not in SMALL and not affordable(runner, cell, GRAPH_STEPS):
        raise CannotRunError("too large to be run here")

    def find() -> Row:
        graph = recorded_graph(runner, cell)
        found = solve.curve(graph, POINTS, time_limit=QUICK_LIMIT if runner.quick else LIMIT)
        return {
            "points": [(int(one.peak), float(one.extra_seconds)) for one in found],
            "seconds": float(graph.seconds.sum()),
            "bound": int(found[-1].lower_bound or 0),
        }

    return runner.finished(f"schedule/curves/{cell.name}", find, quick=runner.quick)
