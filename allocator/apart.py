"""Apart from the program: where what makes plans runs, so that no pool serves its arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import Context
from typing import ParamSpec, TypeVar

from ._core import set_aside

P = ParamSpec("P")
R = TypeVar("R")


def runs_apart(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs in an empty context, where NumPy's handler is the default one, unseen by a pool."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        before = set_aside(True)
        try:
            return Context().run(function, *args, **kwargs)
        finally:
            set_aside(before)

    return wrapped
