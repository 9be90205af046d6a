"""What a schedule costs: the live bytes of a step under it, and the seconds that it adds.

`simulate` is one evaluation with all its details. A solver, which asks again and again, keeps a `simulator` and changes
single ways: ``core/simulator/simulator.hpp`` tells what an evaluation costs and how it is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._simulator import Simulator
from .graph import IntArray, StepGraph
from .schedule import Rates, Schedule, require_valid


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of `simulate` for n operators and m values.

    Attributes
    ----------
    peak
        Bytes, without the resident storages.
    place
        Position in the order of the operator before, or in, which the peak is; its first moment. -1: nothing is ever
        alive.
    rerun
        The operator that runs again at that moment, or -1.
    extra_seconds
        Seconds of recomputation, packing, unpacking and stalls.
    recomputed
        (position, operators in their order) of each recomputation: what runs again before the operator there.
    swapped
        (value, position, position) of each value that is swapped: before which operators it leaves, and is fetched.
    released
        For each value the position after which it goes for the last time, int64 (m,); -1: it never existed, or stays.
        A copy that a recomputation makes of a value that is not DROPPED does not count.
    live
        Bytes at each position's fullest moment, int64 (n,).
    """

    peak: int
    place: int
    rerun: int
    extra_seconds: float
    recomputed: tuple[tuple[int, tuple[int, ...]], ...]
    swapped: tuple[tuple[int, int, int], ...]
    released: IntArray
    live: IntArray


def simulate(graph: StepGraph, schedule: Schedule, rates: Rates | None = None) -> Outcome:
    """Run a schedule in thought.

    Parameters
    ----------
    graph
        The step.
    schedule
        A schedule of this graph.
    rates
        Bytes a second of swapping and packing; None: the defaults.

    Raises
    ------
    ScheduleError
        The schedule is not one of this graph (see ``require_valid``).
    """
    require_valid(graph, schedule)
    core = simulator(graph, schedule, rates)
    peak, place, rerun, seconds = core.evaluate()
    recomputed = tuple((position, tuple(operators)) for position, operators in core.recomputed())
    released, live = core.released(), core.live()
    released.flags.writeable = live.flags.writeable = False
    swapped = tuple(core.swapped(schedule.way))
    return Outcome(peak, place, rerun, seconds, recomputed, swapped, released, live)


def simulator(graph: StepGraph, schedule: Schedule, rates: Rates | None = None) -> Simulator:
    """Return a `Simulator` at a schedule, which is trusted to be one of this graph. For solvers."""
    rates = rates or Rates()
    core = Simulator(graph, rates.swap, rates.pack)
    core.set_order(schedule.order)
    core.set_ways(schedule.way)
    if schedule.drops is not None:
        for storage, operators in enumerate(schedule.drops.rows()):
            if operators:
                core.set_drops(storage, operators)
    return core
