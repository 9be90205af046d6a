"""Every error that stowplan raises by itself, in one small tree.

Public as `stowplan.errors`. Each class also derives from the built-in
exception that a caller would expect, so ``except ValueError`` works as well.
"""

from __future__ import annotations

import os
from typing import Any


class StowplanError(Exception):
    """Base class of stowplan's errors."""


class ProblemError(StowplanError, ValueError):
    """A packing problem is malformed: a negative size, an empty lifetime, contradicting constraints."""


class ConflictError(StowplanError, AssertionError):
    """A placement is invalid. The message names the first pair of blocks in conflict, or the rule broken.

    Attributes
    ----------
    pair
        Row numbers of the two blocks; both the same when a single block breaks a rule.
    """

    def __init__(self, message: str, pair: tuple[int, int]) -> None:
        super().__init__(message)
        self.pair = pair


class InfeasibleError(StowplanError, ValueError):
    """No placement fits the capacity that was given."""


class UnknownSolverError(StowplanError, LookupError):
    """No solver is registered under this name."""


class UnsupportedConstraintError(StowplanError, ValueError):
    """The solver named does not support a constraint of the problem."""


class FormatError(StowplanError, ValueError):
    """A file is not what it should be.

    Parameters
    ----------
    path
        The file.
    message
        What was found and what was expected.
    line
        Line number, from 1, if the format has lines.
    """

    def __init__(self, path: str | os.PathLike[str], message: str, line: int | None = None) -> None:
        where = os.fspath(path) if line is None else f"{os.fspath(path)}, line {line}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.line = line


class ProfileError(StowplanError, ValueError):
    """The columns of a profile contradict each other."""


class GraphError(StowplanError, ValueError):
    """A step graph is malformed: a cycle, an unknown value, a negative size."""


class ScheduleError(StowplanError, ValueError):
    """A schedule breaks a rule: an operator before what it depends on, a value that is gone when it is read."""


class BudgetError(StowplanError, ValueError):
    """No schedule found keeps to the budget. The message names the smallest peak found, and what makes it.

    Attributes
    ----------
    least
        Bytes: the smallest peak that was found.
    floor
        What makes it, as a clause.
    solution
        The ``stowplan.scheduling.solve.Solution`` that has it.
    """

    def __init__(self, message: str, least: int, floor: str, solution: Any) -> None:
        super().__init__(message)
        self.least, self.floor, self.solution = least, floor, solution


class MissingDependencyError(StowplanError, ImportError):
    """An optional dependency is not installed, or cannot be imported. The message tells how to get it."""


class RemovedError(StowplanError, ImportError):
    """What is imported was removed. The message tells what to use instead."""


class PoolError(StowplanError, RuntimeError):
    """A pool is used in a way that it cannot serve: entered twice, a step within a step."""


class ScriptError(StowplanError, ValueError):
    """A script is not Python, or has no such function."""


def _made_again(kind: type[Any], arguments: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *arguments)
    vars(error).update(state)
    return error


def _reduced(error: BaseException) -> Any:
    """Tell pickle how to make an error again whose message is made of other arguments."""
    return _made_again, (type(error), error.args, vars(error))


for _error in [one for one in globals().values() if isinstance(one, type) and issubclass(one, Exception)]:
    _error.__module__ = "stowplan.errors"  # the public name, in tracebacks, pickles and the reference
    if "__init__" in vars(_error):
        type.__setattr__(_error, "__reduce__", _reduced)
