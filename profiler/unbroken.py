"""Set-ups, and what undoes them, that no signal's handler cuts in two: see ``_unbroken.pxi``.

`unbroken` is for ``__enter__`` and ``__exit__``, `unbroken_context` for a generator: with either, what a handler
raises comes before the set-up has begun, in the block of the ``with`` statement, or when all is undone. `passed_on` is
for what Python calls when an object goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, _GeneratorContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from ._recorder import passed_on, unbroken

__all__ = ["WeakKeys", "passed_on", "unbroken", "unbroken_context"]

P = ParamSpec("P")
T = TypeVar("T")


class _Unbroken(_GeneratorContextManager):  # type: ignore[type-arg]
    __enter__: Any = unbroken(_GeneratorContextManager.__enter__)
    __exit__: Any = unbroken(_GeneratorContextManager.__exit__)


def unbroken_context(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """As `contextlib.contextmanager`; no signal's handler runs in what comes before and after the ``yield``."""

    @wraps(function)
    def make(*args: P.args, **named: P.kwargs) -> Any:
        return _Unbroken(function, args, named)  # type: ignore[arg-type]

    return make


class WeakKeys(WeakKeyDictionary[Any, T]):
    """A `WeakKeyDictionary` that loses no exception of a handler when a key goes."""

    def __init__(self) -> None:
        super().__init__()
        self._remove = passed_on(self._remove)  # type: ignore[has-type]
