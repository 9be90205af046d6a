"""Solvers of one kind by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from .errors import UnknownSolverError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
    removed
        Names of solvers that were removed: for one release, whoever asks for one is told to take ``choice``.
    """

    def __init__(
        self,
        group: str,
        choice: str | None = None,
        former: Mapping[str, str] | None = None,
        removed: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._group, self._choice = group, choice
        self._former, self._removed = former or {}, removed

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
        if name in self._removed:
            raise UnknownSolverError(f"the solver {name!r} was removed; expected {self._choice}")
        known = ", ".join([*([self._choice] if self._choice else []), *self.names()])
        raise UnknownSolverError(f"there is no solver named {name!r}; expected one of: {known}")

    def find(self, name: str) -> S:
        """Return the solver of this name; errors are those of `name_of`."""
        return self[self.name_of(name)]
