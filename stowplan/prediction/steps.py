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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ProfileError
from ..profiler import Profile
from ..profiler.profile import UNKNOWN_NS
from ..profiler.sequence_matching import match_sequences
from .laws import Grid, Laws

__all__ = ["Powers", "Shape", "StepModel", "described", "fit_steps"]

IntArray = npt.NDArray[np.int64]
Shape = Mapping[str, int]

MOST_DIFFERENT = 0.02
"""Share of requests that may have no counterpart in the profile of another batch."""
TOLERANCE = 0.005
"""Share of bytes by which the sizes of a profile may deviate from the prediction."""


@dataclass(frozen=True, eq=False)
class Powers:
    """Sizes as products of powers: by number, of each block, int64 (n,); of the numbers in which profiles differ."""

    of: Mapping[str, IntArray]

    def at(self, shape: Shape, known: Shape, size: IntArray) -> list[int]:
        """Return whole sizes at a shape from those at a known one, rounded up."""
        factors = [(shape[name], known[name], powers.tolist()) for name, powers in self.of.items()]
        found: list[int] = size.tolist()  # whole numbers of any length
        for k in range(len(found)):
            above = below = 1
            for new, old, powers in factors:
                grown, shrunk = (new, old) if powers[k] >= 0 else (old, new)
                above, below = above * grown ** abs(powers[k]), below * shrunk ** abs(powers[k])
            found[k] = -(-found[k] * above // below)
        return found


@dataclass(frozen=True, eq=False)
class StepModel:
    """The blocks of a step as functions of its shape. Made by `fit_steps`.

    Attributes
    ----------
    shape, reference
        The shape with the largest blocks, and its profile.
    laws
        Of the blocks' sizes: `Laws` of the batch, or `Powers`.
    matched
        Number of blocks requested at the smallest batch, too. One that was not is assumed to grow in proportion.
    batches
        Batch sizes of the profiles, rising; empty where shapes differ in other numbers.
    deviation
        For the profiles that check the laws: their shape, and how far sizes are off as a share of their bytes.
    """

    shape: Shape
    reference: Profile
    laws: Laws | Powers
    matched: int
    batches: tuple[int, ...]
    deviation: tuple[tuple[Shape, float], ...]

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
            if isinstance(self.laws, Powers) and name not in self.laws.of and shape[name] != self.shape[name]:
                raise ProfileError(
                    f"{name}:{shape[name]}, and it is {self.shape[name]} in all profiles; expected one with another"
                )
        if isinstance(self.laws, Powers):
            return np.array(self.laws.at(shape, self.shape, self.reference.size), np.int64)
        size: IntArray = np.maximum(self.laws.at([shape["batch"]]), 0).astype(np.int64)
        return size

    def profile(self, shape: Shape) -> Profile:
        """Predict the profile at a shape; wall-clock times and what else was alive are unknown. Errors as `sizes`."""
        unknown: IntArray = np.full(len(self.reference), UNKNOWN_NS)
        size = self.sizes(shape)
        return replace(
            self.reference, size=size, alloc_ns=unknown, free_ns=unknown, alive=unknown, program=None
        )

    @property
    def grows(self) -> bool:
        """Whether a larger batch needs more bytes."""
        return bool((self.sizes({"batch": 2 * self.batches[-1]}) > self.reference.size).any())


def fit_steps(profiles: Sequence[tuple[Shape, Profile]]) -> StepModel:
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


# --------------------------------------------------------------------------------------------------------- batches


def _fit_batches(profiles: Mapping[int, Profile]) -> StepModel:
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
    laws = Grid((high,), (low - high,), 1).fit(np.column_stack([reference.size, smallest]))
    model = StepModel({"batch": high}, reference, laws, len(pairs), batches, ())
    checks = []
    for batch in batches[1:-1]:
        pairs = _counterparts(batch, profiles[batch], high, reference)
        found, predicted = profiles[batch].size[pairs[:, 0]], model.sizes({"batch": batch})[pairs[:, 1]]
        off = np.abs(found - predicted)
        share = _share(off, profiles[batch])
        if share > TOLERANCE:
            k = int(off.argmax())
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
    small_size, large_size = small.size.tolist(), large.size.tolist()
    small_site = [small.sites[k] if k >= 0 else None for k in small.site.tolist()]
    large_site = [large.sites[k] if k >= 0 else None for k in large.site.tolist()]

    def same(i: int, j: int) -> bool:
        a, b = small_size[i], large_size[j]
        return a <= b and b * low <= a * high and small_site[i] == large_site[j]

    pairs = match_sequences(len(small), n, same, int(MOST_DIFFERENT * (len(small) + n)))
    if pairs is None:
        k = next((k for k in range(min(len(small), n)) if not same(k, k)), min(len(small), n))
        sizes = [f"{size[k]} bytes" if k < len(size) else "none" for size in (small_size, large_size)]
        raise ProfileError(
            f"the steps at batches {low} and {high} differ in more than {MOST_DIFFERENT:.0%} of their {len(small)} "
            f"and {n} requests, first at request {k}: {sizes[0]} and {sizes[1]}; expected sizes affine in the batch"
        )
    return pairs


# ---------------------------------------------------------------------------------------------------------- powers


def _fit_powers(profiles: Sequence[tuple[Shape, Profile]]) -> StepModel:
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
        off = np.abs(profile.size - predicted)
        share = _share(off, profile)
        if share > TOLERANCE:
            k = int(off.argmax())
            raise ProfileError(
                f"sizes are no products of powers of the shape: request {k} asks for {profile.size[k]} bytes at "
                f"{described(other)}; expected {predicted[k]:.0f}"
            )
        checks.append((other, share))
    laws = Powers(dict(zip(names, powers.astype(np.int64), strict=True)))
    return StepModel(dict(shape), reference, laws, len(reference), (), tuple(checks))


def _require_same_step(shape: Shape, profile: Profile, known: Shape, reference: Profile) -> None:
    if len(profile) == len(reference):
        if _same_requests(profile, reference):
            return
        differ = (profile.start != reference.start) | (profile.end != reference.end)
        where = f"first at request {int(differ.argmax())}"
    else:
        where = f"{len(profile)} requests and {len(reference)}"
    raise ProfileError(
        f"the steps at {described(shape)} and {described(known)} differ: {where}; "
        "expected the same blocks in the same order "
        "(NumPy computes in place from 256 KiB on: take small shapes, or large ones)"
    )


def _same_requests(one: Profile, other: Profile) -> bool:
    return np.array_equal(one.start, other.start) and np.array_equal(one.end, other.end)


def _share(off: npt.NDArray[Any], profile: Profile) -> float:
    return float(off.sum() / max(int(profile.size.sum()), 1))
