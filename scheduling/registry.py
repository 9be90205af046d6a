"""Solvers by name.

A solver is a function from a step graph to a schedule: it gets the graph and the options, and returns a valid
`Schedule`, or an `Answer` where it has proved something. It must be deterministic for equal options without a time
limit, and leave the graph alone. Where it finds nothing within the budget, it returns the schedule with the smallest
peak that it has found. One that cannot serve a graph at all raises `NotApplicable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ..common.errors import ScheduleError
from ..common.registry import Registry
from .graph import StepGraph
from .schedule import Rates, Schedule


class NotApplicable(ScheduleError):  # noqa: N818 (a statement about the graph)
    """The solver does not serve a graph like this one; the message tells what it needs."""


@dataclass(frozen=True)
class SchedulingOptions:
    """What a caller may ask of any solver; one that has no use for an option ignores it.

    Attributes
    ----------
    budget
        Bytes that may be alive at once, without the resident ones; None where nothing may cost time, or, for a named
        policy, where its own rule decides what goes.
    time_limit
        Wall-clock seconds, or None for the solver's own choice.
    threads
        Threads that it may use at most.
    rates
        Bytes a second of swapping and packing.
    swap
        Whether values may be swapped.
    incumbents
        Valid schedules to start from, besides the solver's own starting points.
    reorder
        Whether the operators of the backward pass may change places.
    report
        To be called with the peak and the extra seconds of improvements; where it returns False, the solver stops with
        its best.
    """

    budget: int | None = None
    time_limit: float | None = None
    threads: int = 1
    rates: Rates = field(default_factory=Rates)
    swap: bool = False
    incumbents: tuple[Schedule, ...] = ()
    reorder: bool = True
    report: Callable[[int, float], bool] | None = None


class Answer(NamedTuple):
    """A schedule, and whether no other of this graph that keeps to the budget takes less time.

    ``interrupted``: Ctrl-C ended the search early.
    """

    schedule: Schedule
    optimal: bool = False
    interrupted: bool = False


Solver = Callable[[StepGraph, SchedulingOptions], "Schedule | Answer"]

_solvers: Registry[Solver] = Registry("stowplan.scheduling", "auto", removed=("mip",))

solvers: Mapping[str, Solver] = MappingProxyType(_solvers)
"""Every registered solver by its name, read-only; ``"auto"`` is not in it, being a choice among them."""

register, find, names = _solvers.register, _solvers.find, _solvers.names
