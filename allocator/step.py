"""The `with` block around a part of a program that does not repeat; that around a step is compiled (_step.pxi)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar

from ..common.errors import PoolError
from ._core import InterruptedPart
from .lanes import Lanes

P = ParamSpec("P")
R = TypeVar("R")


def interrupt(lanes: Lanes, function: Callable[P, R] | None) -> Any:
    """Interrupt now; or, given a function, return one that runs interrupted.

    A generator or a coroutine runs interrupted in each of its parts; what others do between them does not.

    Raises
    ------
    PoolError
        The function is an asynchronous generator.
    """
    if function is None:
        before = lanes.interruptions
        try:
            return Interruption(lanes)
        except BaseException:  # a signal's, after it has begun
            lanes.be_interrupted(before)
            raise
    interrupted: Any
    if inspect.isasyncgenfunction(function):
        raise PoolError(
            f"{function.__qualname__} is an asynchronous generator, which cannot be interrupted as a whole; "
            "expected `with pool.interrupt():` in it, around code without await and yield"
        )
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def interrupted(*args: P.args, **kwargs: P.kwargs) -> Any:
            return (yield from _Parts(lanes, function(*args, **kwargs)))

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def interrupted(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await _Parts(lanes, function(*args, **kwargs))

    else:

        @functools.wraps(function)
        def interrupted(*args: P.args, **kwargs: P.kwargs) -> R:
            with Interruption(lanes):
                return function(*args, **kwargs)

    return interrupted


class _Parts(Generator[Any, Any, Any]):
    """A generator or a coroutine, each part of which runs interrupted."""

    def __init__(self, lanes: Lanes, inner: Any) -> None:
        self._lanes = lanes
        self._inner = inner

    def send(self, value: Any) -> Any:
        with Interruption(self._lanes):
            return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        with Interruption(self._lanes):
            return self._inner.throw(*error)

    def close(self) -> None:
        with Interruption(self._lanes):
            self._inner.close()

    def __await__(self) -> _Parts:
        return self


class Interruption(InterruptedPart):
    """An interrupted part that has begun; as a context manager it ends on exit, as a decorator it never began."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def __call__(self, function: Callable[P, R]) -> Any:
        """Return the function, to run interrupted."""
        self._lanes.resume()
        return interrupt(self._lanes, function)
