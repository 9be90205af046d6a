"""``stowplan.step()``: marks a step of a program for the pools and recorders that are entered, if there are any.

By itself a marked program runs as an unmarked one does. ``stowplan profile`` records the marked steps, and
``stowplan run`` serves them from plans.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

Stepper = Callable[[Hashable], AbstractContextManager[Any]]

_steppers: list[Stepper] = []


@contextmanager
def step(key: Hashable = None) -> Iterator[None]:
    """Return a context manager, or a decorator, around one step, the code that repeats.

    Parameters
    ----------
    key
        Tells several kinds of steps apart; see `NumpyPool.step`.

    Examples
    --------
    >>> import stowplan
    >>> for _ in range(3):
    ...     with stowplan.step():
    ...         pass
    """
    with ExitStack() as stack:
        for stepper in _steppers:
            stack.enter_context(stepper(key))
        yield


@contextmanager
def steps_go_to(stepper: Stepper) -> Iterator[None]:
    """Enter `stepper(key)` around every marked step, while this context manager is entered."""
    _steppers.append(stepper)
    try:
        yield
    finally:
        _steppers.remove(stepper)
