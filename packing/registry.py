"""Packing solvers by name.

A solver is a function from a problem to offsets: it gets the problem and the options, and returns int64 (n,), or
an `Answer` where it has proved something. It must honour gaps, alignment and fixed offsets, be deterministic for
equal options, and leave the problem alone. Blocks tied to each other never reach it: see `packing.constraints`. What
it returns is validated by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ..common.registry import Registry
from .problem import IntArray, Problem


@dataclass(frozen=True)
class PackingOptions:
    """What a caller may ask of any solver; one that has no use for an option ignores it.

    Attributes
    ----------
    time_limit
        Wall-clock seconds, or None for the solver's own choice.
    threads
        Threads that it may use at most.
    seed
        For solvers that draw random numbers.
    effort
        Work at most, in the solver's own unit; with equal efforts, and no time limit, equal results. None: its choice.
    target
        A peak that is good enough: the lower bound, or a capacity above it.
    capacity
        Where not None, the only question is whether a placement with this peak exists.
    incumbent
        A valid placement, (n,), to start from.
    report
        To be called with the peak of every improvement; where it returns False, the solver stops with its best.
    """

    time_limit: float | None = None
    threads: int = 1
    seed: int = 0
    effort: int | None = None
    target: int = 0
    capacity: int | None = None
    incumbent: IntArray | None = None
    report: Callable[[int], bool] | None = None

    def heard(self, peak: int, lower_bound: int, seconds: float) -> bool:
        """Pass on what a compiled solver tells; whether it goes on."""
        return self.report is None or self.report(peak)


class Answer(NamedTuple):
    """Offsets, and the greatest lower bound that the solver has proved for the problem it was given.

    ``offsets`` is None where there is no placement, or where none was found in time. ``interrupted``: Ctrl-C ended the
    search early.
    """

    offsets: IntArray | None
    lower_bound: int
    interrupted: bool = False


Solver = Callable[[Problem, PackingOptions], "IntArray | Answer"]

_solvers: Registry[Solver] = Registry(
    "stowplan.packing",
    "auto",
    {"large": "window_repair", "outward": "peak_outward"},
    ("greedy_by_breadth", "greedy_by_size", "greedy_in_order"),
)
_improving: set[str] = set()

solvers: Mapping[str, Solver] = MappingProxyType(_solvers)
"""Every registered solver by its name, read-only; ``"auto"`` is not in it, being a choice among them.

Those of entry points are in it once they were requested, or after `load`."""

find, name_of, load, names = _solvers.find, _solvers.name_of, _solvers.load, _solvers.names


def register(name: str, *, improves: bool = False) -> Callable[[Solver], Solver]:
    """Register the decorated function as a solver, for this process.

    Parameters
    ----------
    name
        What callers pass.
    improves
        Whether it starts from an incumbent. Then the cheap heuristics run before it, it is not run at all if one of
        them meets the target, and ``PackingOptions.incumbent`` is never None.

    Raises
    ------
    ValueError
        The name is taken.
    """
    add = _solvers.register(name)
    if improves:
        _improving.add(name)
    return add


def improves(name: str) -> bool:
    """Whether the solver of this name starts from an incumbent."""
    return name in _improving
