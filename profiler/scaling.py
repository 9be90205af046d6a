"""Predict the profile of a step at any batch size from its profiles at two or three.

Nearly all sizes that a step asks for are affine in the batch: activations grow with it, parameters and their gradients
do not. So two profiles determine each block::

    size
      |                 . x   size = constant + per_item * batch
      |           . x'
      |     . x                  x   profiled: the smallest and the largest batch make the fit
      | .                        x'  profiled: those between check it
      +-----2-----3-----4----> batch

Lifetimes, streams and call sites are those of the largest batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ProfileError
from .profile import Profile
from .sequence_matching import match_sequences

IntArray = npt.NDArray[np.int64]

MOST_DIFFERENT = 0.02
"""Share of requests that may have no counterpart in the profile of another batch."""
TOLERANCE = 0.005
"""Share of bytes by which the sizes of a profile that checks the fit may deviate from the prediction."""


@dataclass(frozen=True, eq=False)
class BatchModel:
    """The blocks of a step as functions of its batch. Made by `fit_batches`.

    Attributes
    ----------
    batches
        Batch sizes of the profiles it was made of, rising.
    reference
        The profile at the largest of them.
    smallest
        Size of each block at the smallest of them, int64 (n,). A block that was not requested there is assumed to grow
        in proportion to the batch.
    matched
        Number of blocks requested at both.
    deviation
        By batch, for the profiles between: how far their sizes are from the prediction, as a share of their bytes.
    """

    batches: tuple[int, ...]
    reference: Profile
    smallest: IntArray
    matched: int
    deviation: Mapping[int, float]

    def sizes(self, batch: int) -> IntArray:
        """Size of each block at a batch size, int64 (n,), rounded up to whole bytes.

        Raises
        ------
        ProfileError
            The batch is below 1.
        """
        if batch < 1:
            raise ProfileError(f"a batch of {batch}; expected 1 or more")
        low, high = self.batches[0], self.batches[-1]
        grown = (self.reference.size - self.smallest) * (batch - high)
        return np.maximum(self.reference.size - -grown // (high - low), 0)

    def profile(self, batch: int) -> Profile:
        """Predict the profile at a batch size; wall-clock times are unknown.

        Raises
        ------
        ProfileError
            The batch is below 1.
        """
        return resized(self.reference, self.sizes(batch))

    @property
    def grows(self) -> bool:
        """Whether a larger batch needs more bytes."""
        return bool((self.reference.size > self.smallest).any())


def resized(profile: Profile, size: IntArray) -> Profile:
    """Return a profile with other sizes, int64 (n,), and without wall-clock times."""
    return Profile(
        size,
        profile.start,
        profile.end,
        profile.stream,
        period=profile.period,
        site=profile.site,
        sites=profile.sites,
    )


def fit_batches(profiles: Mapping[int, Profile]) -> BatchModel:
    """Fit the size of each block as affine in the batch.

    Parameters
    ----------
    profiles
        By batch size, two or more. Take 2 rather than 1 for the smallest: at 1 array libraries leave out copies.

    Raises
    ------
    ProfileError
        There are fewer than two, a batch is below 1, the steps differ in more than `MOST_DIFFERENT` of their requests,
        or a profile between the smallest and the largest shows that sizes are not affine, by more than `TOLERANCE`.
    """
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
    deviation: dict[int, float] = {}
    model = BatchModel(batches, reference, smallest, len(pairs), deviation)
    for batch in batches[1:-1]:
        deviation[batch] = _deviation(model, batch, profiles[batch])
    return model


def _counterparts(low: int, small: Profile, high: int, large: Profile) -> IntArray:
    """Pairs of the same block at two batch sizes, int64 (k, 2)."""
    n = len(large)
    if (
        small.period == large.period
        and np.array_equal(small.start, large.start)
        and np.array_equal(small.end, large.end)
    ):
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


def _deviation(model: BatchModel, batch: int, between: Profile) -> float:
    """Return how far sizes are from the prediction, as a share of all bytes; raise if that is more than `TOLERANCE`."""
    pairs = _counterparts(batch, between, model.batches[-1], model.reference)
    found = between.size[pairs[:, 0]]
    predicted = model.sizes(batch)[pairs[:, 1]]
    off = np.abs(found - predicted)
    share = float(off.sum() / max(int(between.size.sum()), 1))
    if share > TOLERANCE:
        k = int(off.argmax())
        i, j = pairs[k].tolist()
        low, high = model.batches[0], model.batches[-1]
        raise ProfileError(
            f"sizes are not affine in the batch: request {i} asks for {found[k]} bytes at batch {batch}; expected "
            f"{predicted[k]}, from {model.smallest[j]} at {low} and {model.reference.size[j]} at {high}"
        )
    return share
