"""What a call is made of: its arguments' names and shapes, and stand-ins for large arrays."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .arguments import SHORT, Axis, is_array, small_array

__all__ = [
    "Progress",
    "argument_names",
    "model_key",
    "name_of",
    "reduced",
    "shape_and_dtype",
    "stand_in",
    "takes",
]


def argument_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return names of the first arguments; ``x0`` and so on where the function does not tell."""
    names: list[str] = []
    try:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
            elif parameter.kind == parameter.VAR_POSITIONAL:
                names += [f"{parameter.name}{n}" for n in range(count - len(names))]
    except (TypeError, ValueError):
        pass
    return tuple((*names, *(f"x{n}" for n in range(len(names), count)))[:count])


def model_key(
    examples: Sequence[Any],
    options: Mapping[str, Any],
    free: frozenset[Axis] = frozenset(),
    fixed: frozenset[Axis] = frozenset(),
) -> str:
    """Return what makes another model: dtypes, ranks, short axes, values that are no arrays."""
    parts = []
    for value in examples:
        if is_array(value):
            longest = max(value.shape)
            parts.append(
                f"{value.dtype.str}{[n if n <= SHORT else '-' if 2 * n >= longest else '.' for n in value.shape]}"
            )
        else:
            parts.append(repr(value))
    return " ".join([*parts, repr(sorted(options.items())), repr((sorted(free), sorted(fixed)))])


class Progress:
    """A line on a terminal, once learning takes more than a second."""

    def __init__(self, name: str) -> None:
        self._name, self._began, self._shown = name, time.monotonic(), False

    def __enter__(self) -> Callable[[int, int], None]:
        return self._show

    def _show(self, done: int, planned: int) -> None:
        if sys.stderr.isatty() and time.monotonic() > self._began + 1:
            sys.stderr.write(f"\rstowplan learns {self._name}: {done} of {planned} runs")
            self._shown = True

    def __exit__(self, *error: object) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")


def shape_and_dtype(value: Any, example: Any) -> tuple[tuple[int, ...], Any]:
    """Read what stands for an array: a shape, a length, a pair of shape and dtype, or an array."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return tuple(value.shape), value.dtype
    if isinstance(value, (int, np.integer)):
        return (int(value),), example.dtype
    if len(value) == 2 and isinstance(value[0], tuple):
        return tuple(map(int, value[0])), np.dtype(value[1])
    return tuple(map(int, value)), example.dtype


def stand_in(example: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of a shape and a dtype without memory of its own."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def reduced(examples: Sequence[Any]) -> list[Any]:
    """Return small examples in place of large ones: long axes as long beside each other as they were, nearly."""
    arrays = [value for value in examples if is_array(value) and value.size]
    longest = max((max(value.shape) for value in arrays), default=1)
    ranks = max((sum(n > SHORT for n in value.shape) for value in arrays), default=1)
    most = max(int((1 << 18) ** (1 / max(ranks, 1))), 2 * SHORT)

    def smaller(value: Any) -> Any:
        if longest <= most or not is_array(value):
            return value
        shape = tuple(n if n <= SHORT else max(SHORT + 1, n * most // longest) for n in value.shape)
        return small_array(value, shape, "like")

    return [smaller(value) for value in examples]


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes a keyword; True where it does not tell."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(one.kind == one.VAR_KEYWORD for one in parameters.values())


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name."""
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or function)
