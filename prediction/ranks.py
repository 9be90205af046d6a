"""What a rank of a split program needs, at shapes that were never run: from profiles of small ones.

Blocks grow by powers of a shape's numbers (`stowplan.prediction.steps`), all but `LAYERS`, which repeats blocks.
The steps of two numbers of layers are predicted, and their requests paired::

    2 layers    build build      forward forward            backward backward            update update
                  |     |           |       |                  |        |                  |      |
    3 layers    build build .    forward forward .          backward backward .          update update .

What is alive at a request grows by the same for each layer more: its difference in a pair. So each pair tells how much
is alive there with n layers, and the planned peak is the most of all. (A line through two planned peaks would not do:
with few layers the fullest moment may be another one.) The arena is as far above the peak as with more of the two.

===========  ==========================================================================================================
parallel     a rank of N
===========  ==========================================================================================================
data         the step of a batch / N, rounded up; what is retained is whole on each
tensor       the step of ``tensor:N``, from profiles of ranks of a few, whose shapes have a number ``tensor``
sequence     likewise ``sequence:N``
===========  ==========================================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ProfileError
from ..planning import make_plan
from ..profiler import Profile
from ..profiler.sequence_matching import match_sequences
from .steps import Shape, StepPrediction, fit_steps

__all__ = ["LAYERS", "SPLIT", "Memory", "RankModel", "fit_ranks"]

LAYERS = "layers"
"""The number that repeats blocks."""
SPLIT = ("tensor", "sequence")
"""Numbers of ranks that split a step; a profile's shape has one of them at most."""


class Memory(NamedTuple):
    """What a step needs, in bytes."""

    planned_peak: int
    arena: int


@dataclass(frozen=True)
class RankModel:
    """A step as a function of its shape, by its one or two numbers of layers; by 0 where shapes have no such number."""

    models: Mapping[int, StepPrediction]

    def cannot_tell(self, shape: Shape) -> str:
        """Tell which laws nothing has checked at a shape; nothing if all were."""
        if shape.get(LAYERS, 0) not in self.models:
            given = " and ".join(map(str, self.models))
            return f"nothing checks that {LAYERS} add as much each, from {given} of them"
        return next((one.cannot_tell for one in self.models.values() if one.cannot_tell), "")

    @functools.cached_property
    def pairs(self) -> npt.NDArray[np.int64]:
        """Requests of the two steps that are each other's, int64 (k, 2). O(n * requests of the layers more)."""
        few, many = self.models.values()
        steps = few.profile(few.shape), many.profile(few.shape)
        if any((step.site < 0).any() for step in steps):
            raise ProfileError(
                f"profiles of two numbers of {LAYERS}, without call sites; expected them to be recorded with sites"
            )
        # Alike are requests of one size and one call site, which for links of Chainer's names the layer.
        mine, others = (
            [
                (size, step.sites[site])
                for size, site in zip(step.size.tolist(), step.site.tolist(), strict=True)
            ]
            for step in steps
        )
        n, m = len(mine), len(others)
        pairs = match_sequences(n, m, lambda i, j: mine[i] == others[j], m - n + n // 10)
        if pairs is None:
            raise ProfileError(
                f"the steps of {n} and {m} requests differ in more than layers that were added; expected the same "
                "layers"
            )
        return pairs

    def at(self, shape: Shape, *, alignment: int, **how: Any) -> Memory:
        """Plan the step at a shape.

        The shape has all numbers that the profiles' shapes have; the others are as for `stowplan.planning.make_plan`.

        Raises
        ------
        ProfileError
            The profiles do not tell the effect of one of its numbers, or that of layers for want of call sites.
        """
        if (LAYERS in shape) != (0 not in self.models):
            raise ProfileError(f"{LAYERS} in the shape or in the profiles only; expected it in both")
        wanted, low, high = shape.get(LAYERS, 0), min(self.models), max(self.models)
        if wanted not in self.models and low == high:
            raise ProfileError(
                f"{LAYERS}:{wanted}, and {LAYERS}:{low} in all profiles; expected those of two numbers of layers"
            )
        within, known = _without_layers(shape), wanted if wanted in self.models else high
        plan = make_plan(self.models[known].profile(within), alignment=alignment, **how)
        peak = plan.profile.planned_peak
        if wanted != known:
            few = self.models[low].profile(within)
            before = few.live_bytes()[few.start[self.pairs[:, 0]]]
            grown = plan.profile.live_bytes()[plan.profile.start[self.pairs[:, 1]]] - before
            peak = int((before + -(-grown * (wanted - low) // (high - low))).max())
        return Memory(peak, plan.arena_bytes * peak // max(plan.profile.planned_peak, 1))


def fit_ranks(profiles: Sequence[tuple[Shape, Profile]], parallel: str | None) -> RankModel:
    """Fit the profiles that tell of a way to split a step.

    Parameters
    ----------
    profiles
        With the shape of each.
    parallel
        ``"tensor"`` or ``"sequence"``: those with this number; otherwise those with neither.

    Raises
    ------
    ProfileError
        There are none, those of more than two numbers of layers, or `fit_steps` cannot fit them.
    """
    own = {parallel} & {*SPLIT}
    mine = [(shape, profile) for shape, profile in profiles if shape.keys() & {*SPLIT} == own]
    if not mine:
        number = f"a number {parallel}" if own else f"neither of {', '.join(SPLIT)}"
        raise ProfileError(f"no profile with {number} in its shape; expected two or more")
    groups: dict[int, list[tuple[Shape, Profile]]] = {}
    for shape, profile in mine:
        groups.setdefault(shape.get(LAYERS, 0), []).append((_without_layers(shape), profile))
    if len(groups) > 2 or (0 in groups and len(groups) > 1):
        given = ", ".join(map(str, sorted(groups)))
        raise ProfileError(f"profiles of {given} layers; expected those of one or two numbers of layers")
    return RankModel({layers: fit_steps(group) for layers, group in sorted(groups.items())})


def _without_layers(shape: Shape) -> Shape:
    return {name: number for name, number in shape.items() if name != LAYERS}
