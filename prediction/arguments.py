"""A function's arguments: their names, small arrays like them, and which of their axes are lengths that vary.

Each axis is a length of its own as long as the function takes such arrays. If it raises an error, axes of one length
are tied, step by step::

    example     x (500, 500)   y (500, 500)
    tried 1     x[0] x[1]      y[0] y[1]         four lengths
          2     x[0] x[1]      x[0] x[1]         those at one place of several arrays are one length
          3     x[0] x[0]      x[0] x[0]         all of one length are one

Short axes are fixed: at most `FEW` (channels, coordinates), or an eighth of the longest and at most `SHORT` (kernels).
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..errors import ProfileError

__all__ = ["KINDS", "VARIANTS", "Axis", "Lengths", "arrays", "bytes_of", "is_array", "sizes", "ties"]

FEW, SHORT, TIMES = 4, 35, 8
KINDS = ("like", "noisy", "dominant")
"""Values: those of the example at other places; with noise; as a positive definite matrix where it is square."""
VARIANTS = ("mirrored", "distinct", "scaled")
"""Other values, on which sizes must not depend. Where all are one, zeros stand for the mirrored ones."""
SCALE = 64
_SPREAD = 4  # how many times as long an axis is than those of less than half the longest

Axis = tuple[int, int]


def on_device(value: Any) -> bool:
    """Whether a value is a CuPy array."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


class StandIn(NamedTuple):
    """What is asked about an array, of any shape, without its memory."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


def stand_ins(values: Sequence[Any], shape: Callable[[int, Any], Iterable[int]]) -> list[Any]:
    """Return stand-ins for the arrays among some values, of the shapes that a function of place and value gives."""
    return [
        StandIn(tuple(shape(n, value)), value.dtype) if is_array(value) else value
        for n, value in enumerate(values)
    ]


def is_array(value: Any) -> bool:
    """Whether a value is an array with an axis, of NumPy or CuPy, or stands for one."""
    return (isinstance(value, (np.ndarray, StandIn)) or on_device(value)) and len(value.shape) > 0


def bytes_of(values: Sequence[Any]) -> int:
    """Return the bytes of the arrays among some values."""
    return sum(value.nbytes for value in values if is_array(value))


def sizes(values: Sequence[Any]) -> tuple[int, ...]:
    """Return the most elements, the most bytes and the longest axis of the arrays among some values."""
    counts = [(math.prod(value.shape), value.nbytes, max(value.shape)) for value in values if is_array(value)]
    return tuple(max(column) for column in zip(*counts, strict=True)) or (0, 0, 0)


def axes_of(values: Sequence[Any]) -> dict[Axis, int]:
    """Return how long each axis of the arrays is."""
    arrays = [(n, value) for n, value in enumerate(values) if is_array(value) and value.nbytes]
    return {(n, axis): count for n, value in arrays for axis, count in enumerate(value.shape)}


def varying(examples: Sequence[Any]) -> frozenset[Axis]:
    """Return the axes of examples that are lengths: all but the short ones."""
    axes = axes_of(examples)
    longest = max(axes.values(), default=0)
    return frozenset(
        one
        for one, count in axes.items()
        if count > FEW and not (count <= SHORT and count * TIMES <= longest)
    )


@dataclass(frozen=True)
class Lengths:
    """Which axes of the arguments, as (argument, axis), make each length; and their proportions."""

    axes: tuple[tuple[Axis, ...], ...]
    weight: tuple[int, ...]

    def stand_ins(self, examples: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
        """Return the arguments at some lengths, with stand-ins for arrays."""
        of = {axis: n for axes, n in zip(self.axes, lengths, strict=True) for axis in axes}
        return stand_ins(
            examples, lambda k, value: (of.get((k, axis), n) for axis, n in enumerate(value.shape))
        )


def ties(examples: Sequence[Any], vary: frozenset[Axis]) -> Iterator[Lengths]:
    """Yield ways to make lengths of the axes that vary, the most lengths first."""
    length = axes_of(examples)
    longest = max(length.values(), default=0)
    seen = set()
    for key in (
        lambda one: one,
        lambda one: (length[one], one[1] - examples[one[0]].ndim),
        lambda one: (length[one], one[1]),
        lambda one: length[one],
    ):
        groups: dict[Any, list[Axis]] = {}
        for one in sorted(vary):
            groups.setdefault(key(one), []).append(one)
        axes = tuple(tuple(group) for group in groups.values())
        if axes not in seen:
            seen.add(axes)
            long = [2 * length[group[0]] >= longest for group in axes]
            yield Lengths(axes, tuple(_SPREAD if one and not all(long) else 1 for one in long))


def arrays(examples: Sequence[Any], wanted: Sequence[Any], kind: str = "like", seed: int = 0) -> list[Any]:
    """Return new arrays of the wanted shapes and dtypes, with values like the examples'; and wanted values as they are.

    ``kind``: of `KINDS` or `VARIANTS`.
    """
    return [
        _array(example, value.shape, kind, seed).astype(value.dtype, copy=False) if is_array(value) else value
        for example, value in zip(examples, wanted, strict=True)
    ]


def _array(example: Any, shape: tuple[int, ...], kind: str, seed: int) -> Any:
    if not example.size:  # it has no values
        example = np.zeros_like(example, shape=[max(n, 1) for n in example.shape])
    picked = np.ix_(*(np.arange(n) * old // max(n, 1) for n, old in zip(shape, example.shape, strict=True)))
    if on_device(example):
        found = example[tuple(map(sys.modules["cupy"].asarray, picked))].get()
    else:
        found = np.asarray(example[picked])
        found = found.copy() if found.base is not None or np.shares_memory(found, example) else found
    if kind == "mirrored" and found.dtype.kind in "biufc" and found.size:
        constant = bool((found == found.flat[0]).all())
        mirrored = ~found if found.dtype.kind == "b" else found.min() + (found.max() - found)
        found = np.zeros_like(found) if constant and found.flat[0] else mirrored.astype(found.dtype)
    elif kind == "scaled" and found.dtype.kind in "fc":
        found = found / found.dtype.type(SCALE)
    elif kind == "distinct" and found.dtype.kind in "iuf" and found.size:
        share = np.random.default_rng(seed).random(shape) ** 4  # not as many above each bound as below
        found = (found.min() + share * (float(found.max()) - float(found.min()))).astype(found.dtype)
    elif kind in ("noisy", "dominant") and found.dtype.kind in "fc":
        noise = np.random.default_rng(seed).standard_normal(shape)
        found = (found + noise * (float(np.abs(found).std()) or 1.0) / 8).astype(found.dtype)
        if kind == "dominant" and found.ndim >= 2 and found.shape[-1] == found.shape[-2]:
            found = (found + found.swapaxes(-1, -2)) / 2
            found = found + np.eye(shape[-1]) * (2 * np.abs(found).sum(axis=-1).max() + 1)
    return sys.modules["cupy"].asarray(found) if on_device(example) else found


def reduced(examples: Sequence[Any]) -> list[Any]:
    """Return copies of the examples, small for large ones: long axes in nearly the same proportions."""
    longest = max(axes_of(examples).values(), default=1)
    ranks = max((sum(n > SHORT for n in value.shape) for value in examples if is_array(value)), default=1)
    most = min(max(int((1 << 18) ** (1 / max(ranks, 1))), 2 * SHORT), longest)
    smaller = stand_ins(
        examples,
        lambda _, value: (n if n <= SHORT else max(SHORT + 1, n * most // longest) for n in value.shape),
    )
    return arrays(examples, smaller)


def like(examples: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Return stand-ins for the examples with the short axes and the dtypes that are wanted, and the other values."""

    def shape(k: int, value: Any) -> Iterator[int]:
        for n, old in zip(value.shape, examples[k].shape, strict=True):
            yield n if n <= SHORT else max(old, SHORT + 1)

    return stand_ins(wanted, shape)


def key_of(examples: Sequence[Any], options: Mapping[str, Any], vary: frozenset[Axis]) -> str:
    """Return what makes other laws: dtypes, ranks, fixed axes, values that are no arrays, and what varies."""
    parts = []
    for k, value in enumerate(examples):
        if is_array(value):
            longest = max(value.shape)
            shape = [
                ("-" if 2 * n >= longest else ".") if (k, axis) in vary or n > SHORT else n
                for axis, n in enumerate(value.shape)
            ]
            parts.append(f"{value.dtype.str}{shape}")
        else:
            parts.append(repr(value))
    return " ".join([*parts, repr(sorted(options.items())), repr(sorted(vary))])


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return a function's parameters by name; none where it does not tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def argument_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return names of the first arguments; ``x0`` and so on where the function does not tell."""
    told = parameters(function).values()
    names = [one.name for one in told if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    more = next((one.name for one in told if one.kind == one.VAR_POSITIONAL), "x")
    return (*names, *(f"{more}{n}" for n in range(count)))[:count]


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes a keyword; True where it does not tell."""
    told = parameters(function)
    return not told or name in told or any(one.kind == one.VAR_KEYWORD for one in told.values())


def stand_in(name: str, value: Any, example: Any) -> StandIn:
    """Read what stands for an array: a shape, a length, a pair of shape and dtype, or an array."""
    shape, dtype = value, example.dtype
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape, dtype = value.shape, value.dtype
    elif isinstance(value, Sequence) and len(value) == 2 and isinstance(value[0], tuple):
        shape, dtype = value[0], np.dtype(value[1])
    try:
        lengths = tuple(map(index, (shape,) if hasattr(shape, "__index__") else shape))
    except TypeError:
        lengths = ()
    if len(lengths) != example.ndim or min(lengths) < 0:
        raise ProfileError(
            f"{name} has the shape {shape!r}; expected {example.ndim} lengths of 0 or more, as in the example"
        )
    return StandIn(lengths, dtype)
