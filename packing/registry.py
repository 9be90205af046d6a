"""Solvers by name.

A solver is a function from a problem to offsets: it gets the problem and the options, and returns int64 (n,), or
an `Answer` where it has proved something. It must honour gaps, alignment and fixed offsets, be deterministic for
equal options, and leave the problem alone. Blocks tied to each other never reach it: see `packing.constraints`. What
it returns is validated by the caller.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import UnknownSolverError
from .problem import IntArray, Problem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


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

    def heard(self, peak: int, seconds: float) -> bool:
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

S = TypeVar("S")


class Registry(dict[str, S]):
    """Solvers of one kind by their names.

    Parameters
    ----------
    group
        Of the entry points by which installed packages offer solvers: an entry's name is a solver's, its value the
        module that registers it. Such a module is imported when its solver is first requested.
    choice
        What callers pass for a choice among the solvers; none of them can have this name.
    former
        Names that solvers once had, with those that they have now: still found, but not listed.
    """

    def __init__(
        self, group: str, choice: str | None = None, former: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._group = group
        self._choice = choice
        self._former = former or {}

    def names(self) -> list[str]:
        """Return the names of all solvers, sorted; none is imported for that."""
        return sorted({*self, *(point.name for point in self._offered())})

    def load(self) -> Registry[S]:
        """Import the modules of all entry points, and return self; one that fails is left out, with a warning."""
        for point in self._offered():
            try:
                point.load()
            except Exception as error:
                warnings.warn(f"the solver {point.name} is left out: {point.value}: {error}", stacklevel=2)
        return self

    def _offered(self) -> Iterator[EntryPoint]:
        from importlib.metadata import entry_points

        return (point for point in entry_points(group=self._group) if point.name not in self)

    def register(self, name: str) -> Callable[[S], S]:
        """Register the decorated function as a solver, for this process.

        Raises
        ------
        ValueError
            The name is taken.
        """
        if name == self._choice or name in self or name in self._former:
            raise ValueError(f"a solver named {name!r} exists")

        def add(solver: S) -> S:
            self[name] = solver
            return solver

        return add

    def name_of(self, name: str) -> str:
        """Return the name that the solver has now.

        Raises
        ------
        UnknownSolverError
            Listing the names that exist.
        """
        name = self._former.get(name, name)
        for point in [] if name in self else [one for one in self._offered() if one.name == name]:
            point.load()
            if name not in self:
                raise UnknownSolverError(
                    f"{point.value} registers no solver {name!r}, as an entry point says"
                )
        if name in self:
            return name
        known = ", ".join([*([self._choice] if self._choice else []), *self.names()])
        raise UnknownSolverError(f"there is no solver named {name!r}; expected one of: {known}")

    def find(self, name: str) -> S:
        """Return the solver of this name; errors are those of `name_of`."""
        return self[self.name_of(name)]


_solvers: Registry[Solver] = Registry(
    "stowplan.packing", "auto", {"large": "window_repair", "outward": "peak_outward"}
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
