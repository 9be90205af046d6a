"""Step graphs and lean profiles of the networks' steps: recorded, or predicted from batches of 2 and 4.

They are kept as files, as the cells are: what was recorded once is read by the next command.
"""

from __future__ import annotations

from dataclasses import replace

from stowplan import Profile
from stowplan.errors import GraphError, ProfileError
from stowplan.profiler import fit_batches
from stowplan.scheduling import StepGraph, scaling, solve

from .recordings import SMALL, affordable
from .scheduled import CannotScheduleError, ScheduledWorkload, record
from .study import CannotRunError, Cell, Row, Study

POINTS = 12
"""Of a curve."""
LIMIT, QUICK_LIMIT = 120.0, 20.0
"""Seconds for a curve at most."""
GRAPH_STEPS = 8
"""Steps' time for a graph: one as Chainer's, one recorded with every function run once more, two timed."""


def recorded_graph(study: Study, cell: Cell) -> StepGraph:
    """Record a cell's step graph, or read what was recorded before."""
    path = study.out / "schedule" / "graphs" / f"{cell.name}.npz"

    def find() -> Row:
        graph: StepGraph = _workload(study, cell).record_graph()
        path.parent.mkdir(parents=True, exist_ok=True)
        graph.save(path)
        return {"operators": len(graph)}

    study.finished(f"schedule/graphs/{cell.name}", find)
    return StepGraph.load(path)


def recorded_profile(study: Study, cell: Cell) -> Profile:
    """Record a cell's lean step, or read what was recorded before."""
    path = study.out / "schedule" / "lean" / f"{cell.name}.npz"

    def find() -> Row:
        work = _workload(study, cell)
        work.schedule()
        work.step()
        try:
            profile = record(work)
        except CannotScheduleError as error:
            raise CannotRunError(str(error)) from None
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.save(path)
        return {"blocks": len(profile)}

    study.finished(f"schedule/lean/{cell.name}", find)
    return Profile.load(path)


def _workload(study: Study, cell: Cell) -> ScheduledWorkload:
    return ScheduledWorkload(cell.model, cell.phase, cell.batch, study.data)


def predicted_graph(study: Study, cell: Cell) -> StepGraph:
    """Predict a cell's step graph from those of small batches.

    Arrays of a few hundred bytes are no values of a step graph. Where a network has such ones at a batch of 2, batches
    twice and four times as large are recorded instead.
    """
    why = ""
    for times in (1, 2, 4):
        graphs = {
            batch: recorded_graph(study, replace(cell, batch=batch)) for batch in (times * b for b in SMALL)
        }
        try:
            return scaling.fit_graphs(graphs).at(cell.batch)
        except GraphError as error:
            why = str(error)
    raise CannotRunError(f"too large to be run here, and not predicted by small batches: {why}")


def predicted_profile(study: Study, cell: Cell) -> Profile:
    """Predict the profile of a cell's lean step from those of small batches."""
    try:
        profiles = {batch: recorded_profile(study, replace(cell, batch=batch)) for batch in SMALL}
        return fit_batches(profiles).profile(cell.batch)
    except ProfileError as error:
        raise CannotRunError(
            f"too large to be run here, and not predicted by small batches: {error}"
        ) from None


def graph_of(study: Study, cell: Cell) -> StepGraph:
    """Record a cell's step graph, or predict it."""
    if cell.batch in SMALL or affordable(study, cell, GRAPH_STEPS):
        return recorded_graph(study, cell)
    return predicted_graph(study, cell)


def curve_of(study: Study, cell: Cell) -> Row:
    """Find what schedules can reach at all.

    Returns
    -------
    dict
        ``points``: (bytes, extra seconds), from lean to the least peak that is found. ``seconds``: of all operators.
        ``bound``: no schedule has a smaller peak.
    """

    def find() -> Row:
        graph = graph_of(study, cell)
        found = solve.curve(graph, POINTS, time_limit=QUICK_LIMIT if study.quick else LIMIT)
        return {
            "points": [(int(one.peak), float(one.extra_seconds)) for one in found],
            "seconds": float(graph.seconds.sum()),
            "bound": int(found[-1].lower_bound or 0),
        }

    return study.finished(f"schedule/curves/{cell.name}", find, quick=study.quick)
