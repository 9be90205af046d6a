"""Solvers for the order of operators, by name.

A solver is a function from a problem to an `Answer`: it gets the problem and the options, and returns a permutation of
the operators in which each comes after those before it. It must leave the problem alone, and be deterministic where no
time limit cuts it short. What it returns is validated by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ...common.registry import Registry
from ..graph import IntArray
from .problem import OrderProblem


@dataclass(frozen=True)
class OrderingOptions:
    """What a caller may ask of any solver.

    Attributes
    ----------
    time_limit
        Wall-clock seconds, or None: no limit.
    report
        To be called with the peak and the lower bound where one has improved; where it returns False, the solver stops
        with its best.
    """

    time_limit: float | None = None
    report: Callable[[int, int], object] | None = None


class Answer(NamedTuple):
    """An order, and what is known of it.

    Attributes
    ----------
    order
        The operators as they run, int64 (n,).
    lower_bound
        No order has a smaller peak. 0 where nothing is known.
    found_by
        The solver that found it; ``"joined"`` where joining operators that may always run one right after the other was
        enough.
    states
        Sets of operators looked at.
    interrupted
        Ctrl-C ended the search early.
    """

    order: IntArray
    lower_bound: int
    found_by: str
    states: int = 0
    interrupted: bool = False


Solver = Callable[[OrderProblem, OrderingOptions], Answer]

_solvers: Registry[Solver] = Registry("stowplan.ordering")

solvers: Mapping[str, Solver] = MappingProxyType(_solvers)
"""Every registered solver by its name, read-only."""

register, find, names = _solvers.register, _solvers.find, _solvers.names
