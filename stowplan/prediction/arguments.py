"""Small arrays like the ones given: which of their axes are lengths that vary, and with what values.

Each axis is a length of its own as long as the function takes such arrays. If it raises an error, axes of one length
are tied, step by step::

    example     x (500, 500)   y (500, 500)
    tried 1     x[0] x[1]      y[0] y[1]         four lengths
          2     x[0] x[1]      x[0] x[1]         those at one place of several arrays are one length
          3     x[0] x[0]      x[0] x[0]         all of one length are one

Short axes are fixed: at most `FEW` (channels, coordinates), or an eighth of the longest and at most `SHORT` (kernels).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .runs import on_device

__all__ = ["KINDS", "VARIANTS", "Lengths", "is_array", "small_array", "ties"]

FEW, SHORT, TIMES = 4, 35, 8
KINDS = ("like", "noisy", "dominant")
"""Values: those of the example at other places; with noise; as a positive definite matrix where it is square."""
VARIANTS = ("mirrored", "distinct", "scaled")
"""Other values, on which sizes must not depend. Where all are one, zeros stand for the mirrored ones."""
SCALE = 64
_SPREAD = 4  # how many times as long an axis is than those of less than half the longest

Axis = tuple[int, int]


def is_array(value: Any) -> bool:
    """Whether it is an array with an axis, of NumPy or CuPy."""
    return (isinstance(value, np.ndarray) or on_device(value)) and value.ndim > 0


@dataclass(frozen=True)
class Lengths:
    """Which axes of the arguments make which length.

    Attributes
    ----------
    axes
        Of each length: (argument, axis) pairs.
    weight
        Of each length: its size beside the others', so that small ones stay below large ones.
    """

    axes: tuple[tuple[Axis, ...], ...]
    weight: tuple[int, ...]

    def shapes(self, examples: Sequence[Any], lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the shape of each argument at some lengths; an argument that is no array has the shape ()."""
        shapes = [list(value.shape) if is_array(value) else [] for value in examples]
        for axes, length in zip(self.axes, lengths, strict=True):
            for argument, axis in axes:
                shapes[argument][axis] = length
        return [tuple(shape) for shape in shapes]


def ties(
    examples: Sequence[Any], free: frozenset[Axis] = frozenset(), fixed: frozenset[Axis] = frozenset()
) -> Iterator[Lengths]:
    """Yield ways to make lengths of the axes, the most lengths first.

    Parameters
    ----------
    examples
        Arguments; those that are no arrays have no axes.
    free, fixed
        Axes that vary although they are short, and others that do not.
    """
    arrays = {n: value for n, value in enumerate(examples) if is_array(value) and value.size}
    length = {(n, axis): count for n, value in arrays.items() for axis, count in enumerate(value.shape)}
    longest = max(length.values(), default=0)
    varying = [
        one
        for one, count in length.items()
        if one in free
        or (one not in fixed and count > FEW and not (count <= SHORT and count * TIMES <= longest))
    ]
    seen = set()
    for key in (
        lambda one: one,
        lambda one: (length[one], one[1] - arrays[one[0]].ndim),
        lambda one: (length[one], one[1]),
        lambda one: length[one],
    ):
        groups: dict[Any, list[Axis]] = {}
        for one in varying:
            groups.setdefault(key(one), []).append(one)
        axes = tuple(tuple(group) for group in groups.values())
        if axes not in seen:
            seen.add(axes)
            long = [2 * length[group[0]] >= longest for group in axes]
            yield Lengths(axes, tuple(_SPREAD if one and not all(long) else 1 for one in long))


def small_array(example: Any, shape: tuple[int, ...], kind: str, seed: int = 0) -> Any:
    """Return an array of another shape, with values like the example's.

    Parameters
    ----------
    kind
        One of `KINDS` or `VARIANTS`.
    seed
        Of the noise.
    """
    picked = np.ix_(*(np.arange(n) * old // max(n, 1) for n, old in zip(shape, example.shape, strict=True)))
    found = np.asarray(example[picked].get() if on_device(example) else example[picked])
    found = found.copy() if found.base is not None or np.shares_memory(found, example) else found
    numeric = found.dtype.kind in "biufc"
    if kind == "mirrored" and numeric and found.size:
        constant = bool((found == found.flat[0]).all())
        mirrored = ~found if found.dtype.kind == "b" else found.min() + (found.max() - found)
        found = np.zeros_like(found) if constant and found.flat[0] else mirrored.astype(found.dtype)
    elif kind == "scaled" and found.dtype.kind in "fc":
        found = found / found.dtype.type(SCALE)
    elif kind == "distinct" and found.dtype.kind in "iuf" and found.size:
        share = np.random.default_rng(seed).random(shape) ** 4  # not as many above each bound as below
        found = (found.min() + share * (float(found.max()) - float(found.min()))).astype(found.dtype)
    elif found.dtype.kind in "fc" and kind in ("noisy", "dominant"):
        noise = np.random.default_rng(seed).standard_normal(shape)
        found = (found + noise * (float(np.abs(found).std()) or 1.0) / 8).astype(found.dtype)
        if kind == "dominant" and found.ndim >= 2 and found.shape[-1] == found.shape[-2]:
            found = (found + found.swapaxes(-1, -2)) / 2
            found = found + np.eye(shape[-1], dtype=found.dtype) * (2 * np.abs(found).sum(axis=-1).max() + 1)
            found = found.astype(example.dtype)
    if on_device(example):
        import cupy

        return cupy.asarray(found)
    return found
