"""A function that is hard to predict, and the table of them, which `traps` fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Trap(NamedTuple):
    """A function, the arguments that it takes at a size, the size of the example and the one that is asked about."""

    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    example: int
    asked: int


TRAPS: dict[str, Trap] = {}


def line(n: int) -> tuple[Any, ...]:
    return (np.random.default_rng(n).standard_normal(n),)


def ones(n: int) -> tuple[Any, ...]:
    return (np.ones(n),)


def number(n: int) -> tuple[Any, ...]:
    return (n,)


def trap(
    arguments: Callable[[int], tuple[Any, ...]] = ones, example: int = 5000, asked: int = 8_000_000
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        TRAPS[function.__name__] = Trap(function, arguments, example, asked)
        return function

    return add
