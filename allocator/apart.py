"""Apart from the program: where what makes plans runs, so that no pool serves its arrays."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ._core import set_aside

P = ParamSpec("P")
R = TypeVar("R")


def apart(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in an empty context, where NumPy's handler is the default one, unseen by a pool in its place."""
    before = set_aside(True)
    try:
        return contextvars.Context().run(function, *args, **kwargs)
    finally:
        set_aside(before)


def runs_apart(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs apart."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        return apart(function, *args, **kwargs)

    return wrapped
