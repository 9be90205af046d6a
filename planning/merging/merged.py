"""What is known of the steps that a merged plan stands for."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ...profiler import Profile
from .requests import NEVER, BoolArray, IntArray, Requests

ROOM = 8
"""A slot has room for sizes beyond the largest: one part in so many of the span between them and the smallest."""


@dataclass(frozen=True, eq=False)
class Merged:
    """What is known of a merged plan's steps, beside its profile; columns int64 (n,), one entry a request.

    Attributes
    ----------
    least
        The smallest size that was asked for; the profile has the largest.
    trust
        How far steps agree on where the block is freed: one more for each that does, up to `merge.SURE`, two less for
        each that does not. If it is above 0 the block is a landmark.
    life
        Requests that the block lived for when it was first seen, `NEVER` if beyond the step.
    free_signature
        What was freed before the request when it was first seen; see `Requests.free_signature`.
    idle
        Steps in a row that were merged and had no such request.
    """

    least: IntArray
    trust: IntArray
    life: IntArray
    free_signature: IntArray
    idle: IntArray

    @classmethod
    def of_one_step(cls, plan: Requests) -> Merged:
        """Return what a plan that was made of one step says of it."""
        n = len(plan)
        return cls(
            plan.size,
            (~plan.wrapped).astype(np.int64),
            # An escaped block gets a lifetime below 0, which no step's request has: it is matched with none.
            np.where(plan.wrapped, NEVER, plan.due - np.arange(n)),
            plan.free_signature,
            np.zeros(n, np.int64),
        )

    def rows(self, keep: BoolArray) -> Merged:
        """Return what is known of some of the requests, bool (n,)."""
        return Merged(*(getattr(self, field.name)[keep] for field in fields(self)))

    def room(self, profile: Profile) -> IntArray:
        """Return the bytes that each slot has beyond the largest size that was seen, int64 (n,)."""
        return (profile.size - np.clip(self.least, 0, profile.size)) // ROOM
