"""Predict the profile of a step at any shape from its profiles at a few small ones; a batch is a shape of one number.

==================  ===============================  =====================================================  ==========
shapes differ in    a block's size                   known from                                             requests
==================  ===============================  =====================================================  ==========
the batch alone     constant * batch**2              one batch, if all others are met to the byte; or else  may differ
                    constant + per_item * batch      the smallest and the largest; those between check it
other numbers       constant * words**1 * ranks**-1  one, and for each number another in which it differs;  are equal
                                                     all must be met
==================  ===============================  =====================================================  ==========

Activations grow with the batch, parameters and their gradients do not. An array's size is the product of its
dimensions, so that its logarithm is affine in theirs, with whole powers: the profiles that it is not made of check
them. Numbers that repeat blocks (layers) are not among these: see ``stowplan.prediction.ranks``. Lifetimes, streams and
call sites are those of the largest profile. O(blocks * profiles).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ProfileError, StowplanError
from ..profiler import Profile
from ..profiler.profile import UNKNOWN_NS
from ..profiler.sequence_matching import match_sequences
from ..units import counted
from .laws import Grid, Laws
from .prediction import Peak, Prediction
from .runs import alive_at

__all__ = ["Shape", "StepPrediction", "described", "fit_steps", "fitted", "not_checked", "off_by", "rising"]

IntArray = npt.NDArray[np.int64]
Shape = Mapping[str, int]

MOST_DIFFERENT = 0.02
"""Share of requests that may have no counterpart in the profile of another batch."""
TOLERANCE = 0.005
"""Share of bytes by which the sizes of a profile may deviate from the prediction."""
MOST_POWER, MOST_UNIT = 3, 512
"""The highest power of the batch in a law; the most bytes that a device's allocator rounds sizes to."""


@dataclass(frozen=True, eq=False, repr=False)
class StepPrediction(Prediction):
    """The blocks of a step as functions of its shape. Made by `fit_steps`.

    Attributes
    ----------
    shape
        The shape with the largest blocks.
    reference
        The profile of that shape.
    laws
        The size formulas of the blocks.
    names
        The dimension sizes in the formulas.
    matched
        Number of blocks requested at the smallest batch, too. One that was not is assumed to grow in proportion.
    batches
        Batch sizes of the profiles, rising; empty where shapes differ in other numbers.
    deviation
        For the profiles that check the laws: their shape, and how far sizes are off as a share of their bytes.
    cannot_tell
        The blocks whose law no profile has checked but those that made it; empty if there are none.
    """

    shape: Shape
    reference: Profile
    laws: Laws
    names: tuple[str, ...]
    matched: int
    batches: tuple[int, ...]
    deviation: tuple[tuple[Shape, float], ...]
    cannot_tell: str
    title = "a step"

    def sizes(self, shape: Shape) -> IntArray:
        """Size of each block at a shape, int64 (n,), rounded up to whole bytes.

        Raises
        ------
        ProfileError
            A number of the shape is missing, below 1, or another than in all profiles that show nothing of its effect.
        """
        for name in self.shape.keys() | shape.keys():
            if name not in self.shape or name not in shape:
                raise ProfileError(
                    f"no {name} in {described(self.shape if name in shape else shape)}; expected it in both"
                )
            if shape[name] < 1:
                raise ProfileError(f"{name}:{shape[name]}; expected 1 or more")
            if name not in self.names and shape[name] != self.shape[name]:
                raise ProfileError(
                    f"{name}:{shape[name]}, and it is {self.shape[name]} in all profiles; expected one with another"
                )
        size: IntArray = np.maximum(self.laws.at([shape[name] for name in self.names]), 0).astype(np.int64)
        return size

    def profile(self, shape: Shape) -> Profile:
        """Predict the profile at a shape; wall-clock times and what else was alive are unknown. Errors as `sizes`."""
        unknown: IntArray = np.full(len(self.reference), UNKNOWN_NS)
        size = self.sizes(shape)
        return replace(
            self.reference, size=size, alloc_ns=unknown, free_ns=unknown, alive=unknown, program=None
        )

    def peak(self, /, **shapes: Any) -> Peak:
        """Predict the fullest moment of the step's blocks: those that escape are results, the others temporaries."""
        profile = self.profile({**self.shape, **shapes})
        live = profile.step_bytes()
        if not len(live):
            return Peak(0, 0, 0)
        tick = int(live.argmax())
        escaped = int(profile.escaped_bytes()[tick])
        return Peak.of(0, int(live[tick]), escaped, alive_at(profile, tick)[1], self.cannot_tell)

    def explain(self) -> str:
        """Return how it was fitted, and by line what is alive at the fullest moment of twice the largest shape."""
        head = f"{len(self.reference):,} blocks, fitted from {described(self.shape)} and smaller"
        checks = [f"checked at {described(shape)}: {share:.3%} off" for shape, share in self.deviation]
        checks += [f"cannot tell: {self.cannot_tell}"] * bool(self.cannot_tell)
        peak = self.peak(**{name: 2 * self.shape[name] for name in self.names})
        return "\n".join(
            ["; ".join([head, *checks]), *(f"  {count:,}  {line}" for line, count in peak.lines.items())]
        )

    def _along(self, name: str, axis: int, shapes: Mapping[str, Any]) -> tuple[str, Callable[[int], Peak]]:
        return name, lambda number: self.peak(**{**shapes, name: number})

    @property
    def grows(self) -> bool:
        """Whether a larger batch needs more bytes."""
        return bool((self.sizes({"batch": 2 * self.batches[-1]}) > self.reference.size).any())


def fit_steps(profiles: Sequence[tuple[Shape, Profile]]) -> StepPrediction:
    """Fit the size of each block as a function of the shape.

    Parameters
    ----------
    profiles
        With the shape of each, two or more; all shapes have the same numbers. If ``batch`` is the only one, take 2
        rather than 1 for the smallest: at 1 array libraries leave out copies.

    Raises
    ------
    ProfileError
        There are too few; the steps differ in their requests (by more than ``MOST_DIFFERENT`` of them, if the batch is
        the only number); the shapes do not tell the effects of two numbers apart; or a profile's sizes follow no such
        law, by more than ``TOLERANCE`` of its bytes.
    """
    batches: tuple[int, ...] = ()
    names: tuple[str, ...] = ("batch",)
    if all(shape.keys() == {"batch"} for shape, _ in profiles):
        by_batch = {shape["batch"]: profile for shape, profile in profiles}
        batches = rising(by_batch, "profile", ProfileError)
        profiles = [({"batch": batch}, by_batch[batch]) for batch in batches]
    shape, reference = profiles[-1] if batches else max(profiles, key=lambda pair: int(pair[1].size.sum()))
    pairs = [_counterparts(other, profile, shape, reference) for other, profile in profiles]
    found = np.full((len(reference), len(profiles)), -1, dtype=np.int64)
    for k, ((_, profile), rows) in enumerate(zip(profiles, pairs, strict=True)):
        found[rows[:, 1], k] = profile.size[rows[:, 0]]
    if batches:
        laws, checked = fitted(batches, found)
    else:
        laws, names = _powers(profiles, shape, reference)
        checked = _met(laws, [[other[name] for name in names] for other, _ in profiles], found)
    why = not_checked(checked, reference.size, "blocks", "request {}".format, batches)
    model = StepPrediction(dict(shape), reference, laws, names, len(pairs[0]), batches, (), why)
    checks = [
        (other, _off(model, other, profile, rows))
        for (other, profile), rows in zip(profiles, pairs, strict=True)
        if other.get("batch") not in (*batches[:1], *batches[-1:])
    ]
    return replace(model, deviation=tuple(checks))


def described(shape: Shape) -> str:
    """Return a shape as the command line takes it."""
    return ",".join(f"{name}:{number}" for name, number in shape.items())


def rising(by_batch: Mapping[int, Any], what: str, error: type[StowplanError]) -> tuple[int, ...]:
    """Return the batches of what was recorded; raise an error if there are too few."""
    batches = tuple(sorted(by_batch))
    if len(batches) < 2:
        raise error(f"{counted(len(batches), what)}; expected those of two or more batch sizes")
    if batches[0] < 1:
        raise error(f"a batch of {batches[0]}; expected 1 or more")
    return batches


def fitted(batches: Sequence[int], found: IntArray) -> tuple[Laws, npt.NDArray[np.bool_]]:
    """Return quantities as laws of the batch, and whether a batch has checked each, bool (n,).

    A law is a constant times a whole power of the batch if that meets all batches, all but one of which check it; or
    else affine between the smallest and the largest batch, and those between check it.

    Parameters
    ----------
    batches
        Rising.
    found
        By quantity and batch, int64 (n, batches); below 0 where unknown, never at the largest batch. A quantity that is
        unknown at the smallest is taken to grow in proportion.
    """
    low, high = batches[0], batches[-1]
    last, known = found[:, -1], found >= 0
    first = np.where(known[:, 0], found[:, 0], last * low // high)
    grown = np.log(np.maximum(last, 1) / np.maximum(first, 1)) / math.log(high / low)
    powers: npt.NDArray[Any] = np.clip(np.rint(grown), 0, MOST_POWER).astype(int).astype(object)[:, None]
    product = Laws.products([tuple(row) for row in powers.tolist()], [high], last.tolist())
    affine = Grid((low,), (high - low,), 1).fit(np.column_stack([first, last]))
    at = last.astype(object)[:, None] * np.array(batches, dtype=object) ** powers
    is_product = np.logical_and.reduce((at == found.astype(object) * high**powers) | ~known, axis=1)
    laws = Laws(
        (*product.powers, *affine.powers),
        np.hstack([product.factors * is_product[:, None], affine.factors * ~is_product[:, None]]),
        np.where(is_product, product.below, affine.below),
    )
    between = known[:, 1:-1].any(axis=1) & _met(laws, [[batch] for batch in batches], found)
    return laws, np.where(is_product, known[:, :-1].any(axis=1), between)


def _met(laws: Laws, lengths: Sequence[Sequence[int]], found: IntArray) -> npt.NDArray[np.bool_]:
    """Whether each law meets what was found at some lengths, up to a unit that all sizes are rounded to; bool (n,)."""
    unit = max(min(int(np.gcd.reduce(found[found > 0], initial=0)), MOST_UNIT), 1)
    predicted = np.column_stack([laws.at(one) for one in lengths])
    met: npt.NDArray[np.bool_] = np.logical_and.reduce((abs(predicted - found) < unit) | (found < 0), axis=1)
    return met


def not_checked(
    checked: npt.NDArray[np.bool_],
    size: IntArray,
    what: str,
    name: Callable[[int], str],
    batches: Sequence[int],
) -> str:
    """Tell which sizes' laws nothing has checked, naming the largest; nothing if there are none."""
    if checked.all():
        return ""
    k = int(np.where(checked, -1, size).argmax())
    more = "; two batch sizes check none: add a third" if len(batches) == 2 else ""
    return (
        f"{int((~checked).sum()):,} of {len(checked):,} {what} follow no law that was checked, like {name(k)} "
        f"({size[k]} bytes at the largest){more}"
    )


def _powers(
    profiles: Sequence[tuple[Shape, Profile]], shape: Shape, reference: Profile
) -> tuple[Laws, tuple[str, ...]]:
    """Return sizes as products of powers of the numbers in which shapes differ, and these."""
    names = tuple(name for name in shape if len({other[name] for other, _ in profiles}) > 1)
    steps = np.array([[math.log(other[name] / shape[name]) for name in names] for other, _ in profiles])
    if names and np.linalg.matrix_rank(steps) < len(names):
        raise ProfileError(
            f"{len(profiles)} profiles do not tell the effects of {', '.join(names)} apart; "
            "expected, for each of them, a profile in which it alone differs"
        )
    known = np.maximum(reference.size, 1)
    grown = np.log(np.array([np.maximum(profile.size, 1) for _, profile in profiles]) / known)
    powers = np.rint(np.linalg.lstsq(steps, grown, rcond=None)[0]).astype(int) if names else grown[:0]
    terms = [tuple(block) for block in powers.T.tolist()]
    return Laws.products(terms, [shape[name] for name in names], reference.size.tolist()), names


def _counterparts(other: Shape, small: Profile, shape: Shape, large: Profile) -> IntArray:
    """Pairs of the same block at two shapes, int64 (k, 2): of nearly all if the batch is the only number, or all."""
    if other.keys() != shape.keys():
        raise ProfileError(
            f"{described(other)} beside {described(shape)}; expected the same numbers in all shapes"
        )
    n, m, steps = len(small), len(large), (small, large)
    if np.array_equal(small.start, large.start) and np.array_equal(small.end, large.end):
        return np.column_stack([np.arange(m)] * 2)
    affine = shape.keys() == {"batch"}
    sizes = [step.size.tolist() for step in steps]
    names = [[(*step.sites, None)[k] for k in step.site.tolist()] for step in steps]
    times = [list(zip(step.start.tolist(), step.end.tolist(), strict=True)) for step in steps]

    def same(i: int, j: int) -> bool:
        if not affine:
            return times[0][i] == times[1][j]
        a, b = sizes[0][i], sizes[1][j]
        low, high = other["batch"], shape["batch"]
        power = any(b * low**p == a * high**p for p in range(2, MOST_POWER + 1))
        return bool(a <= b and (b * low <= a * high or power) and names[0][i] == names[1][j])

    most = MOST_DIFFERENT if affine else 0.0
    pairs = match_sequences(n, m, same, int(most * (n + m)))
    if pairs is None:
        k = min(_first(small, large), *(k for k in range(min(n, m)) if affine and not same(k, k)), n, m)
        first = " and ".join(f"{size[k]} bytes" if k < len(size) else "none" for size in sizes)
        expected = (
            "sizes affine in the batch"
            if affine
            else "the same blocks in the same order "
            "(NumPy computes in place from 256 KiB on: take small shapes, or large ones)"
        )
        raise ProfileError(
            f"the steps at {described(other)} and {described(shape)} differ in more than {most:.0%} of their {n} and "
            f"{m} requests, first at request {k}: {first}; expected {expected}"
        )
    return pairs


def _first(one: Profile, other: Profile) -> int:
    """Return the request at which two steps first ask or free otherwise; lifetimes of earlier ones differ as well."""
    rows = [
        sorted(
            (tick, k, ticks is step.end)
            for ticks in (step.start, step.end)
            for k, tick in enumerate(ticks.tolist())
            if tick >= 0
        )
        for step in (one, other)
    ]
    differ = (max(a[1], b[1]) for a, b in zip(*rows, strict=False) if a != b)
    return next(differ, min(len(one), len(other)))


def off_by(
    found: npt.NDArray[Any], predicted: npt.NDArray[Any], whole: float | None = None
) -> tuple[float, int]:
    """Return how far quantities are off, as a share of them or of a whole; and the row that is furthest."""
    off = np.abs(found - predicted)
    whole = float(found.sum()) if whole is None else whole
    return float(off.sum()) / whole if whole else float(off.any()), int(off.argmax()) if len(off) else 0


def _off(model: StepPrediction, shape: Shape, profile: Profile, pairs: IntArray) -> float:
    """Return how far sizes are off, as a share of a profile's bytes; raise an error if that is too far."""
    found, predicted = profile.size[pairs[:, 0]], model.sizes(shape)[pairs[:, 1]]
    share, k = off_by(found, predicted, float(profile.size.sum()))
    if share > TOLERANCE:
        law = (
            "neither affine in the batch nor a power of it"
            if model.batches
            else "no products of powers of the shape"
        )
        raise ProfileError(
            f"sizes are {law}: request {pairs[k, 0]} asks for {found[k]} bytes at {described(shape)}; expected "
            f"{predicted[k]}, as {described(model.shape)} and others say"
        )
    return share
