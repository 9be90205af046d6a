"""Predict the profile of a step at any shape from its profiles at some small ones.

A block is an array, and an array's size the product of its dimensions, so that each block's size is a product of powers
of the numbers that make the shape (words, batch, width, heads, ranks), with a constant::

    size = constant * words**1 * batch**1 * width**1 * ranks**-1          ... a part of the sequence
    size = constant * width**2 * ranks**-1                                ... a part of a matrix

Its logarithm is affine in theirs. One profile, and for each number another in which it differs, give the powers, which
are integers; all profiles must then be predicted to the byte, or nearly so. Numbers that repeat blocks (layers) are not
among these: see `stowplan.insight.shape_prediction`.

The steps must ask for the same blocks in the same order. O(blocks * profiles).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ProfileError
from .profile import Profile
from .scaling import TOLERANCE, resized

Shape = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class ShapeModel:
    """The blocks of a step as functions of its shape. Made by `fit_shapes`.

    Attributes
    ----------
    shape, reference
        The shape with the largest blocks, and its profile.
    powers
        By number: of each block's size, int64 (n,). Of the numbers that differ between the profiles alone.
    deviation
        How far sizes are from the prediction in the profile that is worst predicted, as a share of its bytes.
    """

    shape: Shape
    reference: Profile
    powers: Mapping[str, npt.NDArray[np.int64]]
    deviation: float

    def profile(self, shape: Shape) -> Profile:
        """Predict the profile at a shape, in whole bytes; wall-clock times are unknown.

        Raises
        ------
        ProfileError
            A number of the shape is missing, below 1, or another than in all profiles that show nothing of its effect.
        """
        factors: list[tuple[int, int, list[int]]] = []  # a number's new and old value, and its powers
        for name in self.shape.keys() | shape.keys():
            if name not in self.shape or name not in shape:
                raise ProfileError(
                    f"no {name} in {_described(self.shape if name in shape else shape)}; expected it in both"
                )
            if shape[name] < 1:
                raise ProfileError(f"{name}:{shape[name]}; expected 1 or more")
            if name in self.powers:
                factors.append((shape[name], self.shape[name], self.powers[name].tolist()))
            elif shape[name] != self.shape[name]:
                raise ProfileError(
                    f"{name}:{shape[name]}, and it is {self.shape[name]} in all profiles; expected one with another"
                )
        size = self.reference.size.tolist()  # whole numbers of any length
        for k in range(len(size)):
            above = below = 1
            for new, old, powers in factors:
                grown, shrunk = (new, old) if powers[k] >= 0 else (old, new)
                above, below = above * grown ** abs(powers[k]), below * shrunk ** abs(powers[k])
            size[k] = -(-size[k] * above // below)
        return resized(self.reference, np.array(size, np.int64))


def fit_shapes(profiles: Sequence[tuple[Shape, Profile]]) -> ShapeModel:
    """Fit the size of each block as a product of powers of the numbers of a shape.

    Parameters
    ----------
    profiles
        With the shape of each; all shapes have the same numbers.

    Raises
    ------
    ProfileError
        The steps differ in their requests, the shapes do not tell the effects of two numbers apart, or sizes are no
        such products, by more than `stowplan.profiler.scaling.TOLERANCE` of a profile's bytes.
    """
    shape, reference = max(profiles, key=lambda pair: int(pair[1].size.sum()))
    for other, profile in profiles:
        if other.keys() != shape.keys():
            raise ProfileError(
                f"{_described(other)} beside {_described(shape)}; expected the same numbers in all shapes"
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
    off = [
        _deviation(other, profile, known * np.exp(row @ powers))
        for (other, profile), row in zip(profiles, steps, strict=True)
    ]
    return ShapeModel(
        dict(shape), reference, dict(zip(names, powers.astype(np.int64), strict=True)), max(off)
    )


def _require_same_step(shape: Shape, profile: Profile, known: Shape, reference: Profile) -> None:
    if len(profile) == len(reference):
        if np.array_equal(profile.start, reference.start) and np.array_equal(profile.end, reference.end):
            return
        differ = (profile.start != reference.start) | (profile.end != reference.end)
        where = f"first at request {int(differ.argmax())}"
    else:
        where = f"{len(profile)} requests and {len(reference)}"
    raise ProfileError(
        f"the steps at {_described(shape)} and {_described(known)} differ: {where}; "
        "expected the same blocks in the same order "
        "(NumPy computes in place from 256 KiB on: take small shapes, or large ones)"
    )


def _deviation(shape: Shape, profile: Profile, predicted: npt.NDArray[np.float64]) -> float:
    """Return how far sizes are off as a share of the bytes; raise if that is more than `TOLERANCE`."""
    off = np.abs(profile.size - predicted)
    share = float(off.sum() / max(int(profile.size.sum()), 1))
    if share > TOLERANCE:
        k = int(off.argmax())
        raise ProfileError(
            f"sizes are no products of powers of the shape: request {k} asks for {profile.size[k]} bytes at "
            f"{_described(shape)}; expected {predicted[k]:.0f}"
        )
    return share


def _described(shape: Shape) -> str:
    return ",".join(f"{name}:{number}" for name, number in shape.items())
