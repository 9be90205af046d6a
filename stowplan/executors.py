"""``served(function)``: a function whose calls are steps of a pool, wherever they run.

Executors, pools of processes and joblib call functions in threads and processes of their own, where no ``with pool:``
of the program reaches. So the function brings its pool along: the first call in a process makes it there::

    program                                    thread or process of an executor
    executor.map(served(smooth), images) ───>  pool of this process ──> with pool.serving(), pool.step(): smooth(image)

A call's arrays come from a plan, but for its result, which the caller keeps for as long as it likes (`Pool.step`,
``keeps_results``). Calls are of one kind if their arrays, as far as they are arguments themselves, are as
many and take as many bytes together: they request the same blocks then, as a rule.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import numpy as np

from .allocator.options import limit_bytes
from .errors import PoolError
from .host_memory import host_memory

if TYPE_CHECKING:
    from .allocator import NumpyPool

P = ParamSpec("P")
R = TypeVar("R")

KINDS = 256
"""Plans to keep: computations have more kinds of tasks than loops have kinds of steps."""

_pools: dict[int | None, NumpyPool] = {}  # of this process, by limit


class _Call(threading.local):
    """Whether this thread is in a served call."""

    runs = False


_call = _Call()


class served(Generic[P, R]):  # noqa: N801  # used as a function
    """Return the function, each call of which is a step of a pool of the process that it runs in.

    It can be pickled if the function can, for any start method of processes. A call within a served call belongs to
    that step.

    Parameters
    ----------
    function
        Anything that is called and returns; no coroutine function, no generator function.
    limit
        The most that the pool of a process may take: bytes, text such as ``"4 GiB"``, or ``"20%"`` of the memory.

    Attributes
    ----------
    pool
        The pool of this process, for functions of the same ``limit``; made when it is first requested.

    Raises
    ------
    PoolError
        ``function`` is not callable, or is a coroutine function or a generator; ``limit`` is no size.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np
    >>> from stowplan import served
    >>> def smooth(image):
    ...     return (image + np.roll(image, 1)) / 2
    >>> images = [np.arange(1000.0) for _ in range(20)]
    >>> with ThreadPoolExecutor(2) as executor:
    ...     smoothed = list(executor.map(served(smooth), images))
    """

    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], *, limit: int | str | None = None) -> None:
        if not callable(function):
            raise PoolError(f"{function!r} cannot be served; expected a function")
        for is_one, what in _REFUSED:
            if is_one(function):
                raise PoolError(
                    f"{getattr(function, '__qualname__', function)} is {what}: other code runs between its parts; "
                    "expected a function whose call is one step"
                )
        functools.update_wrapper(
            self, function
        )  # and the attributes, which may be those of one that is served
        self._limit = None if limit is None else limit_bytes(limit, host_memory)

    @property
    def pool(self) -> NumpyPool:
        """The pool of this process."""
        # Without a mutex, which a fork might take along: of two pools made at once, one stays.
        return _pools.get(self._limit) or _pools.setdefault(self._limit, task_pool(self._limit))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, in a step."""
        function = self.__wrapped__
        if _call.runs:
            return function(*args, **kwargs)
        pool = self.pool
        key = kind(getattr(function, "__qualname__", type(function).__qualname__), (*args, *kwargs.values()))
        _call.runs = True
        try:
            with pool.serving(), pool.step(key, keeps_results=True):
                return function(*args, **kwargs)
        finally:
            _call.runs = False

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the method, where a method was decorated."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        if self._is_named():  # a decorator's result: its name leads here, and none leads to the function
            return self.__qualname__  # type: ignore[attr-defined]
        return _make, (self.__wrapped__, self._limit)

    def _is_named(self) -> bool:
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in getattr(self, "__qualname__", "").split("."):
            found = getattr(found, part, None)
        return found is self


def _make(function: Callable[P, R], limit: int | None) -> served[P, R]:
    """Make one that was pickled."""
    return served(function, limit=limit)


_REFUSED: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (inspect.iscoroutinefunction, "a coroutine function"),
    (inspect.isasyncgenfunction, "an asynchronous generator function"),
    (inspect.isgeneratorfunction, "a generator function"),
)


def task_pool(limit: int | None) -> NumpyPool:
    """Make a pool for tasks: any call may be followed by one of another kind, and each keeps its results."""
    from .allocator import NumpyPool

    return NumpyPool(warmup=0, max_plans=KINDS, limit=limit)


def kind(name: str, values: Iterable[object]) -> str:
    """Return the step key of a task, by its name and by the arrays among its arguments."""
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    others = sum(
        not array.flags.c_contiguous for array in arrays
    )  # of which many functions make a copy first
    return f"{name} ({len(arrays)} arrays, {sum(array.nbytes for array in arrays)} bytes, {others} not in C order)"
