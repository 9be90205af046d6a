"""``stowplan.step()``: marks a step of a program for what runs it: ``stowplan profile``, ``stowplan run``.

By itself a marked program runs as an unmarked one does. ``stowplan profile`` records the marked steps, and
``stowplan run`` serves them from plans.

A step of a coroutine lasts from its start to its end; what other tasks do while it waits is counted to it. A thread has
one step at a time, so while a coroutine's step waits, a second coroutine begins none of its own. Generators are
refused: the code between their parts belongs to their caller.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NoReturn, TypeVar

from ...common.errors import ScriptError

Stepper = Callable[[Hashable], AbstractContextManager[Any]]
F = TypeVar("F", bound=Callable[..., Any])

_steppers: list[Stepper] = []


class _Waiting(threading.local):
    """Whether a coroutine's step has begun in this thread and not ended."""

    runs = False


_coroutine = _Waiting()


class step:  # noqa: N801  # used as a function
    """Return a context manager, or a decorator, around one step, the code that repeats.

    ``stowplan profile`` and ``stowplan run`` look at it. A pool or a recorder of the program's own does not: it has a
    ``step()`` of its own.

    Decorates functions and coroutine functions. Of several coroutines that wait for each other in one thread, only one
    runs a step at a time; there is one RuntimeWarning if that happens.

    Parameters
    ----------
    key
        Tells several kinds of steps apart; see `NumpyPool.step`.

    Raises
    ------
    ScriptError
        It decorates a generator function.

    Examples
    --------
    Without ``stowplan profile`` or ``stowplan run`` the mark changes nothing:

    >>> import stowplan
    >>> for batch in (1, 2, 3):
    ...     with stowplan.step():
    ...         loss = batch / 2
    >>> loss
    1.5
    """

    def __init__(self, key: Hashable = None) -> None:
        self._key = key
        self._stack: ExitStack | None = None

    def __enter__(self) -> None:
        if not _steppers:
            return
        with ExitStack() as stack:
            for stepper in _steppers:
                stack.enter_context(stepper(self._key))
            self._stack = stack.pop_all()

    def __exit__(self, *error: Any) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.__exit__(*error)

    def __call__(self, function: F) -> F:
        """Return the function, each call of which is a step."""
        key = self._key
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            refuse_generators(getattr(function, "__qualname__", str(function)))
        marked: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def marked(*args: Any, **kwargs: Any) -> Any:
                with _coroutine_step(key):
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def marked(*args: Any, **kwargs: Any) -> Any:
                with step(key):
                    return function(*args, **kwargs)

        return marked  # type: ignore[no-any-return]


@contextmanager
def _coroutine_step(key: Hashable) -> Iterator[None]:
    if _coroutine.runs:
        warnings.warn(
            "a coroutine that is a step began while another one's step was waiting in the same thread; it is counted "
            "to that step. Steps that mix so do not repeat: await them one after the other, or mark the code between "
            "two awaits with `with stowplan.step():`",
            RuntimeWarning,
            stacklevel=3,
        )
        yield
        return
    with step(key):
        _coroutine.runs = True
        try:
            yield
        finally:
            _coroutine.runs = False


def refuse_generators(name: str) -> NoReturn:
    """Raise a ScriptError for a step function that is a generator."""
    raise ScriptError(
        f"the step function {name} is a generator: other code runs between its parts; expected a function whose call "
        "is one step. Mark the function that runs the loop's body, or put `with stowplan.step():` around that body"
    )


@contextmanager
def steps_go_to(stepper: Stepper) -> Iterator[None]:
    """Enter `stepper(key)` around every marked step, while this context manager is entered."""
    _steppers.append(stepper)
    try:
        yield
    finally:
        _steppers.remove(stepper)
