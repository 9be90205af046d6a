"""``stowplan.step()``: where a step of a program is, for whoever is watching or serving it, if anybody is.

A program marked with it runs as before without stowplan's commands; under ``stowplan profile`` the marked steps are
recorded, and under ``stowplan run`` they are served from plans.
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
        Says which of several steps this is; see `NumpyPool.step`.

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
    """Have marked steps be those of a pool, or of a recorder, for as long as the context manager is entered."""
    _steppers.append(stepper)
    try:
        yield
    finally:
        _steppers.remove(stepper)
