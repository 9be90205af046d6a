"""Predict the profile of a step at any shape from its profiles at a few small ones; a batch is a shape of one number.

==================  ===============================  =====================================================  ==========
shapes differ in    a block's size                   known from                                             requests
==================  ===============================  =====================================================  ==========
the batch alone     constant + per_item * batch      the smallest and the largest; those between check it   may differ
other numbers       constant * words**1 * ranks**-1  one, and for each number another in which it differs;  are equal
                                                     all must be met
==================  ===============================  =====================================================  ==========

Activations grow with the batch, parameters and their gradients do not. An array's size is the product of its
dimensions, so that its logarithm is affine in theirs, with whole powers. Numbers that repeat blocks (layers) are not
among these: see `stowplan.prediction.ranks`. Lifetimes, streams and call sites are those of the largest profile.
O(blocks * profiles).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ProfileError
from ..profiler import Profile
from ..profiler.profile import UNKNOWN_NS
from ..profiler.sequence_matching import match_sequences
from .laws import Grid, Laws, Products
from .prediction import Peak, Prediction

__all__ = ["Shape", "StepPrediction", "described", "fit_steps", "fitted"]

IntArray = npt.NDArray[np.int64]
Shape = Mapping[str, int]

MOST_DIFFERENT = 0.02
"""Share of requests that may have no counterpart in the profile of another batch."""
TOLERANCE = 0.005
"""Share of bytes by which the sizes of a profile may deviate from the prediction."""


@dataclass(frozen=True, eq=False, repr=False)
class StepPrediction(Prediction):
    """The blocks of a step as functions of its shape. Made by `fit_steps`.

    Attributes
    ----------
    shape, reference
        The shape with the largest blocks, and its profile.
    laws, names
        Of the blocks' sizes, and the numbers that they are laws of.
    matched
        Number of blocks requested at the smallest batch, too. One that was not is assumed to grow in proportion.
    batches
        Batch sizes of the profiles, rising; empty where shapes differ in other numbers.
    deviation
        For the profiles that check the laws: their shape, and how far sizes are off as a share of their bytes.
    """

    shape: Shape
    reference: Profile
    laws: Laws | Products
    names: tuple[str, ...]
    matched: int
    batches: tuple[int, ...]
    deviation: tuple[tuple[Shape, float], ...]
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

    def peak(self, **shapes: Any) -> Peak:
        """Predict the fullest moment of the planned blocks, which are temporaries; escaped ones are results."""
        profile = self.profile({**self.shape, **shapes})
        live = profile.live_bytes()
        escaped, end = int(profile.size[profile.escaped].sum()), profile.end
        if not len(live):
            return Peak(0, 0, 0)
        tick = int(live.argmax())
        rows = np.flatnonzero(((profile.start <= tick) & (tick < end)) | (tick < end - profile.period))
        lines: dict[str, int] = {}
        for row in rows.tolist():
            line = profile.sites[profile.site[row]] if profile.site[row] >= 0 else ""
            lines[line] = lines.get(line, 0) + int(profile.size[row])
        return Peak.of(0, int(live[tick]) + escaped, escaped, lines)

    def explain(self) -> str:
        """Return how it was fitted, and by line what is alive at the fullest moment of twice the largest shape."""
        head = f"{len(self.reference):,} blocks, fitted from {described(self.shape)} and smaller"
        checks = [f"checked at {described(shape)}: {share:.3%} off" for shape, share in self.deviation]
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
        There are too few; the steps differ in their requests (by more than `MOST_DIFFERENT` of them, if the batch is
        the only number); the shapes do not tell the effects of two numbers apart; or a profile's sizes follow no such
        law, by more than `TOLERANCE` of its bytes.
    """
    if all(shape.keys() == {"batch"} for shape, _ in profiles):
        return _fit_batches({shape["batch"]: profile for shape, profile in profiles})
    return _fit_powers(profiles)


def described(shape: Shape) -> str:
    """Return a shape as the command line takes it."""
    return ",".join(f"{name}:{number}" for name, number in shape.items())


def fitted(low: int, small: npt.ArrayLike, high: int, large: npt.ArrayLike) -> Laws:
    """Return quantities as affine in the batch, from those at two batches."""
    return Grid((high,), (low - high,), 1).fit(np.column_stack([large, small]))


def _fit_batches(profiles: Mapping[int, Profile]) -> StepPrediction:
    batches = tuple(sorted(profiles))
    if len(batches) < 2:
        raise ProfileError(f"{len(batches)} profiles; expected those of two or more batch sizes")
    if batches[0] < 1:
        raise ProfileError(f"a batch of {batches[0]}; expected 1 or more")
    low, high = batches[0], batches[-1]
    reference = profiles[high]
    pairs = _counterparts(low, profiles[low], high, reference)
    smallest = reference.size * low // high
    smallest[pairs[:, 1]] = profiles[low].size[pairs[:, 0]]
    laws = fitted(low, smallest, high, reference.size)
    model = StepPrediction({"batch": high}, reference, laws, ("batch",), len(pairs), batches, ())
    checks = []
    for batch in batches[1:-1]:
        pairs = _counterparts(batch, profiles[batch], high, reference)
        found, predicted = profiles[batch].size[pairs[:, 0]], model.sizes({"batch": batch})[pairs[:, 1]]
        share, k = _off(found, predicted, profiles[batch])
        if share > TOLERANCE:
            i, j = pairs[k].tolist()
            raise ProfileError(
                f"sizes are not affine in the batch: request {i} asks for {found[k]} bytes at batch {batch}; expected "
                f"{predicted[k]}, from {smallest[j]} at {low} and {reference.size[j]} at {high}"
            )
        checks.append(({"batch": batch}, share))
    return replace(model, deviation=tuple(checks))


def _counterparts(low: int, small: Profile, high: int, large: Profile) -> IntArray:
    """Pairs of the same block at two batch sizes, int64 (k, 2)."""
    n = len(large)
    if small.period == large.period and _same_requests(small, large):
        return np.column_stack([np.arange(n)] * 2)
    sizes = [profile.size.tolist() for profile in (small, large)]
    sites = [[(*one.sites, None)[k] for k in one.site.tolist()] for one in (small, large)]

    def same(i: int, j: int) -> bool:
        a, b = sizes[0][i], sizes[1][j]
        return bool(a <= b and b * low <= a * high and sites[0][i] == sites[1][j])

    pairs = match_sequences(len(small), n, same, int(MOST_DIFFERENT * (len(small) + n)))
    if pairs is None:
        shared = min(len(small), n)
        k = next((k for k in range(shared) if not same(k, k)), shared)
        texts = [f"{size[k]} bytes" if k < len(size) else "none" for size in sizes]
        raise ProfileError(
            f"the steps at batches {low} and {high} differ in more than {MOST_DIFFERENT:.0%} of their {len(small)} "
            f"and {n} requests, first at request {k}: {texts[0]} and {texts[1]}; expected sizes affine in the batch"
        )
    return pairs


def _fit_powers(profiles: Sequence[tuple[Shape, Profile]]) -> StepPrediction:
    shape, reference = max(profiles, key=lambda pair: int(pair[1].size.sum()))
    for other, profile in profiles:
        if other.keys() != shape.keys():
            raise ProfileError(
                f"{described(other)} beside {described(shape)}; expected the same numbers in all shapes"
            )
        _require_same_step(other, profile, shape, reference)
    names = [name for name in shape if len({other[name] for other, _ in profiles}) > 1]
    steps = np.array([[math.log(other[name] / shape[name]) for name in names] for other, _ in profiles])
    if names and np.linalg.matrix_rank(steps) < len(names):
        raise ProfileError(
            f"{len(profiles)} profiles do not tell the effects of {', '.join(names)} apart; "
            "expected, for each of them, a profile in which it alone differs"
        )
    known = np.maximum(reference.size, 1)
    grown = np.log(np.array([np.maximum(profile.size, 1) for _, profile in profiles]) / known)
    powers = np.rint(np.linalg.lstsq(steps, grown, rcond=None)[0]) if names else np.empty((0, len(known)))
    checks = []
    for (other, profile), row in zip(profiles, steps, strict=True):
        predicted = known * np.exp(row @ powers)
        share, k = _off(profile.size, predicted, profile)
        if share > TOLERANCE:
            raise ProfileError(
                f"sizes are no products of powers of the shape: request {k} asks for {profile.size[k]} bytes at "
                f"{described(other)}; expected {predicted[k]:.0f}"
            )
        checks.append((other, share))
    laws = Products([shape[name] for name in names], reference.size, powers.astype(np.int64))
    return StepPrediction(dict(shape), reference, laws, tuple(names), len(reference), (), tuple(checks))


def _require_same_step(shape: Shape, profile: Profile, known: Shape, reference: Profile) -> None:
    where = f"{len(profile)} requests and {len(reference)}"
    if len(profile) == len(reference):
        if _same_requests(profile, reference):
            return
        differ = (profile.start != reference.start) | (profile.end != reference.end)
        where = f"first at request {int(differ.argmax())}"
    raise ProfileError(
        f"the steps at {described(shape)} and {described(known)} differ: {where}; "
        "expected the same blocks in the same order "
        "(NumPy computes in place from 256 KiB on: take small shapes, or large ones)"
    )


def _same_requests(one: Profile, other: Profile) -> bool:
    return np.array_equal(one.start, other.start) and np.array_equal(one.end, other.end)


def _off(found: npt.NDArray[Any], predicted: npt.NDArray[Any], profile: Profile) -> tuple[float, int]:
    """How far sizes are off, as a share of a profile's bytes, and the row that is furthest."""
    off = np.abs(found - predicted)
    return float(off.sum() / max(int(profile.size.sum()), 1)), int(off.argmax()) if len(off) else 0
