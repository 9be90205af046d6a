"""A function's arguments: arrays like them of other lengths, and which of their axes and numbers are lengths that vary.

Each axis, and each number above `FEW`, is a length of its own as long as the function takes such arguments. If it
raises an error, those of one length are tied, step by step; at last the numbers are as in the example::

    example     x (500, 500)   y (500, 500)
    tried 1     x[0] x[1]      y[0] y[1]         four lengths
          2     x[0] x[1]      x[0] x[1]         those at one place of several arrays are one length
          3     x[0] x[0]      x[0] x[0]         all of one length are one

Short axes are fixed: at most `FEW` (channels, coordinates), or an eighth of the longest and at most `SHORT` (kernels).
An array like another has its dtype, byte order and layout: the order of its strides, their signs and gaps, and axes
that are broadcast. Whatever else has a size in it (lists of arrays, shapes, iterators) is refused.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..common.errors import ProfileError

FEW, SHORT, TIMES = 4, 35, 8
KINDS = ("like", "dominant")
"""Values: those of the example at other places; with noise, as a positive definite matrix where it is square."""
VARIANTS = ("mirrored", "distinct", "scaled", "tiled")
"""Other values, on which sizes must not depend. Where all are one, zeros stand for the mirrored ones. The tiled ones,
those of larger runs, have as many features for each element as the example."""
SCALE = 64
_SPREAD = 4  # how many times as long an axis is than those of less than half the longest
_MOST = 1 << 18  # elements of a small copy of an example
NUMBER = -1
"""The axis of a number."""

Axis = tuple[int, int]
Steps = tuple[int, ...]


def on_device(value: Any) -> bool:
    """Whether a value is a CuPy array."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


class StandIn(NamedTuple):
    """What is asked about an array, of any shape, without its memory.

    ``order``: the axes, the outermost in memory first; none for that of C. ``steps``: of each axis 0 where it is
    broadcast; or else its sign, doubled where elements between are left out; none where all are 1.
    """

    shape: tuple[int, ...]
    dtype: Any
    order: tuple[int, ...] = ()
    steps: Steps = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all elements; those of a broadcast axis count once."""
        counts = zip(self.shape, self.steps or (1,) * len(self.shape), strict=True)
        return math.prod(n if step else min(n, 1) for n, step in counts) * int(self.dtype.itemsize)

    @property
    def kind(self) -> str:
        """Dtype and layout, as text."""
        return f"{self.dtype.str}{self.order or ''}{self.steps or ''}"


def standing_for(name: str, value: Any) -> StandIn:
    """Return what stands for an array, with its layout; refuse a layout that no new array can have."""
    shape, strides, extent = value.shape, value.strides, value.dtype.itemsize
    steps = [0 if n > 1 and not stride else 1 for n, stride in zip(shape, strides, strict=True)]
    if not value.size:
        return StandIn(shape, value.dtype)
    long = [k for k, n in enumerate(shape) if n > 1 and steps[k]]
    for k in sorted(long, key=lambda k: (abs(strides[k]), -k)):
        if abs(strides[k]) < extent:
            raise ProfileError(
                f"{name} overlaps itself (strides {strides}); expected the array that it is a view of"
            )
        steps[k] = (1 if strides[k] > 0 else -1) * (1 if abs(strides[k]) == extent else 2)
        extent = abs(strides[k]) * shape[k]
    places = iter(sorted(long, key=lambda k: (-abs(strides[k]), k)))
    order = tuple(next(places) if k in long else k for k in range(len(shape)))
    plain = all(step == 1 for step in steps)
    return StandIn(
        shape, value.dtype, () if order == tuple(range(len(shape))) else order, () if plain else tuple(steps)
    )


def laid_out(found: Any, wanted: StandIn) -> Any:
    """Return an array's values in the layout that is wanted."""
    if not (wanted.order or wanted.steps) or not found.size:
        return found
    order = wanted.order or tuple(range(found.ndim))
    steps = wanted.steps or (1,) * found.ndim
    whole = [max(abs(step), 1) * (n if step else 1) for n, step in zip(found.shape, steps, strict=True)]
    made = np.empty_like(found, shape=[whole[k] for k in order]).transpose(np.argsort(order).tolist())
    made = made[tuple(slice(None, None, step or 1) for step in steps)]
    made[...] = found[tuple(slice(None if step else 1) for step in steps)]
    if 0 in steps:
        broadcast = sys.modules["cupy"].broadcast_to if on_device(found) else np.broadcast_to
        return broadcast(made, found.shape)
    return made


def is_array(value: Any) -> bool:
    """Whether a value is an array with an axis, of NumPy or CuPy, or stands for one."""
    known = type(value) is np.ndarray or isinstance(value, StandIn) or on_device(value)
    return known and len(value.shape) > 0


def is_number(value: Any) -> bool:
    """Whether a value is a whole number that may be a length."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) > FEW


def refusal(value: Any, deep: bool = False) -> str:
    """Return what a value is, if it may have a size that is no length; empty if it is an argument that can be told."""
    kind = type(value).__name__
    if is_array(value):
        return kind if deep else ""
    if deep and is_number(value) and value > SHORT:
        return kind
    if getattr(value, "shape", ()) or (isinstance(value, (bytes, bytearray)) and len(value) > SHORT):
        return f"{type(value).__module__}.{kind}"
    if hasattr(value, "__next__"):
        return f"{kind}, which is used up"
    if isinstance(value, str) and value[:1].isdigit():
        return "text that begins with a number"
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        parts = list(value.values()) if isinstance(value, dict) else list(value)
        inner = next((found for part in parts[: SHORT + 1] if (found := refusal(part, deep=True))), "")
        return f"{kind} of {inner}" if inner else f"long {kind}" if len(parts) > SHORT else ""
    return ""


def bytes_of(values: Sequence[Any]) -> int:
    """Return the bytes of the arrays among some values."""
    return sum(value.nbytes for value in values if is_array(value))


def axes_of(values: Sequence[Any]) -> dict[Axis, int]:
    """Return how long each axis of the arrays is, and the numbers."""
    found = {}
    for k, value in enumerate(values):
        if is_array(value):
            found.update({(k, axis): n for axis, n in enumerate(value.shape)} if value.nbytes else {})
        elif is_number(value):
            found[k, NUMBER] = int(value)
    return found


def longest_of(axes: dict[Axis, int]) -> int:
    """Return the longest axis; where there is none, the largest number."""
    return max((n for (_, axis), n in axes.items() if axis != NUMBER), default=max(axes.values(), default=0))


def varying(examples: Sequence[Any]) -> frozenset[Axis]:
    """Return the axes and numbers of examples that are lengths: all but the short ones."""
    axes = axes_of(examples)
    longest = longest_of(axes)
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
        return reshaped(examples, lambda k, axis, n: of.get((k, axis), n))

    def is_number(self, k: int) -> bool:
        """Whether a length is one of numbers alone."""
        return all(axis == NUMBER for _, axis in self.axes[k])


def reshaped(values: Sequence[Any], length: Callable[[int, int, int], int]) -> list[Any]:
    """Return stand-ins of other lengths, which a function of argument, axis and length gives; numbers by it, too."""
    found: list[Any] = []
    for k, value in enumerate(values):
        if is_array(value):
            shape = tuple(length(k, axis, n) for axis, n in enumerate(value.shape))
            found.append(value._replace(shape=shape))
        else:
            found.append(length(k, NUMBER, int(value)) if is_number(value) else value)
    return found


def ties(examples: Sequence[Any], vary: frozenset[Axis]) -> Iterator[Lengths]:
    """Yield ways to make lengths of the axes and numbers that vary, the most lengths first; then without numbers."""
    length, seen = axes_of(examples), set()
    longest = longest_of(length)
    arrays_only = frozenset(one for one in vary if one[1] != NUMBER)
    for varied in (vary, arrays_only) if arrays_only else (vary,):
        for key in (
            lambda one: one,
            lambda one: (length[one], one[1] == NUMBER or one[1] - len(examples[one[0]].shape)),
            lambda one: (length[one], one[1]),
            lambda one: length[one],
        ):
            groups: dict[Any, list[Axis]] = {}
            for one in sorted(varied, key=lambda one: (one[1] == NUMBER, one)):
                groups.setdefault(key(one), []).append(one)
            axes = tuple(tuple(group) for group in groups.values())
            if axes not in seen:
                seen.add(axes)
                long = [2 * length[group[0]] >= longest for group in axes]
                yield Lengths(axes, tuple(_SPREAD if one and not all(long) else 1 for one in long))


def arrays(examples: Sequence[Any], wanted: Sequence[Any], kind: str = "like", seed: int = 0) -> list[Any]:
    """Return new arrays of the wanted shapes, dtypes and layouts, with values like the examples'; others as they are.

    ``kind``: of `KINDS` or `VARIANTS`.
    """
    found = []
    for example, value in zip(examples, wanted, strict=True):
        if is_array(value):
            made = _array(example, value.shape, kind, seed).astype(value.dtype, copy=False)
            made = sys.modules["cupy"].asarray(made) if on_device(example) else made
            value = laid_out(made, value)
        found.append(value)
    return found


def _array(example: Any, shape: tuple[int, ...], kind: str, seed: int) -> Any:
    if not example.size:  # it has no values
        example = np.zeros([max(n, 1) for n in example.shape], example.dtype)
    found = example.get() if on_device(example) else example
    for axis in reversed(range(len(shape))):  # the outermost last: rows are copied fast
        n, old, at = shape[axis], example.shape[axis], np.arange(shape[axis])
        found = found.take(at % old if kind == "tiled" else at * old // max(n, 1), axis)
    if kind == "mirrored" and found.dtype.kind in "biufc" and found.size:
        constant = bool((found == found.flat[0]).all())
        mirrored = ~found if found.dtype.kind == "b" else found.min() + (found.max() - found)
        found = np.zeros_like(found) if constant and found.flat[0] else mirrored.astype(found.dtype)
    elif kind == "scaled" and found.dtype.kind in "iufc":
        found = found * 2 if found.dtype.kind in "iu" else found / found.dtype.type(SCALE)
    elif kind == "distinct" and found.dtype.kind in "iuf" and found.size:
        share = np.random.default_rng(seed).random(shape) ** 4  # not as many above each bound as below
        found = (found.min() + share * (float(found.max()) - float(found.min()))).astype(found.dtype)
    elif kind == "dominant" and found.dtype.kind in "fc":
        noise = np.random.default_rng(seed).standard_normal(shape)
        found = (found + noise * (float(np.abs(found).std()) or 1.0) / 8).astype(found.dtype)
        if found.ndim >= 2 and found.shape[-1] == found.shape[-2]:
            found = (found + found.swapaxes(-1, -2)) / 2
            found = found + np.eye(shape[-1]) * (2 * np.abs(found).sum(axis=-1).max() + 1)
    return found


def reduced(examples: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Return copies of the examples, small for large ones: long axes in nearly the same proportions.

    ``given``: what stands for them.
    """
    longest = longest_of(axes_of(given))
    ranks = max((sum(n > SHORT for n in value.shape) for value in given if is_array(value)), default=1)
    most = min(max(int(_MOST ** (1 / max(ranks, 1))), 2 * SHORT), longest)

    def shorter(k: int, axis: int, n: int) -> int:
        return n if n <= SHORT or axis == NUMBER else max(SHORT + 1, n * most // longest)

    plain = [one._replace(order=(), steps=()) if is_array(one) else one for one in given]
    return arrays(examples, reshaped(plain, shorter))


def like(given: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Return what is wanted, with short axes, small numbers and all else as they are, and long ones as given."""

    def long(k: int, axis: int, n: int) -> int:
        if n <= SHORT:
            return n
        old = int(given[k]) if axis == NUMBER else given[k].shape[axis]
        return max(old, SHORT + 1)

    return reshaped(wanted, long)


def key_of(examples: Sequence[Any], vary: frozenset[Axis]) -> str:
    """Return what makes other formulas: dtypes, layouts, fixed axes, values that are no arrays, and what varies."""
    parts = []
    for k, value in enumerate(examples):
        if is_array(value):
            shape = [-1 if (k, axis) in vary or n > SHORT else n for axis, n in enumerate(value.shape)]
            parts.append(f"{value.kind}{shape}")
        else:
            parts.append("-" if (k, NUMBER) in vary else repr(value))
    return " ".join([*parts, repr(sorted(vary))])


def argument_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return names of the first arguments; ``x0`` and so on where the function does not tell."""
    try:
        told: Iterable[inspect.Parameter] = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        told = ()
    names = [one.name for one in told if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    more = next((one.name for one in told if one.kind == one.VAR_POSITIONAL), "x")
    return (*names, *(f"{more}{n}" for n in range(count)))[:count]


def name_of(names: Sequence[str], axis: Axis) -> str:
    """Return how an axis, or a number, is called."""
    return names[axis[0]] + (f"[{axis[1]}]" if axis[1] != NUMBER else "")


def stood_in(name: str, value: Any, example: Any) -> Any:
    """Read what is asked for in the place of an example, or of what stands for it; refuse what no formula can tell.

    For an array: a shape, a length, a pair of shape and dtype, or an array.
    """
    if is_array(example):
        return _array_wanted(name, value, example)
    if is_number(example) and not (isinstance(value, (int, np.integer)) and value >= 0):
        raise ProfileError(f"{name} is {value!r}; expected a whole number, like {example} in the example")
    same = type(value) is type(example) and repr(value) == repr(example)
    differs = isinstance(value, (float, complex, np.inexact)) or (
        is_number(value) and value > SHORT and not is_number(example)
    )
    if what := "" if same else refusal(value) or (type(value).__name__ if differs else ""):
        raise ProfileError(f"{name} is a {what}; expected {example!r}, as in the example")
    return value


def _array_wanted(name: str, value: Any, example: StandIn) -> StandIn:
    if is_array(value):
        found = value if isinstance(value, StandIn) else standing_for(name, value)
    else:
        shape, dtype = value, example.dtype
        if isinstance(value, Sequence) and len(value) == 2 and isinstance(value[0], tuple):
            shape, dtype = value[0], np.dtype(value[1])
        try:
            lengths = tuple(map(index, (shape,) if hasattr(shape, "__index__") else shape))
        except TypeError:
            lengths = ()
        found = example._replace(shape=lengths, dtype=dtype)
    if len(found.shape) != len(example.shape) or min(found.shape) < 0:
        raise ProfileError(
            f"{name} is {value if isinstance(value, (str, int, tuple)) else found.shape!r}; expected "
            f"{len(example.shape)} lengths of 0 or more, as in the example"
        )
    return found
