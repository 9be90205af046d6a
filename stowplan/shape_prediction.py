"""What a rank of a split program needs, at shapes that nobody ran: from profiles of small ones.

Blocks grow by powers of a shape's numbers (`stowplan.profiler.shape_scaling`), all but `LAYERS`, which repeats blocks:
a step of n layers is planned at two numbers of them, and its memory is affine in n, since each layer more keeps as much
as the one before.

===========  ==========================================================================================================
parallel     a rank of N
===========  ==========================================================================================================
data         the step of a batch / N, rounded up; what is retained is whole on each
tensor       the step of ``tensor:N``, from profiles of ranks of a few, whose shapes have a number ``tensor``
sequence     likewise ``sequence:N``
===========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ProfileError
from .planning import make_plan
from .profiler import Profile
from .profiler.shape_scaling import Shape, ShapeModel, fit_shapes

__all__ = ["LAYERS", "SPLIT", "Memory", "RankModel", "fit_ranks"]

LAYERS = "layers"
"""The number that repeats blocks."""
SPLIT = ("tensor", "sequence")
"""Numbers of ranks that split a step; a profile's shape has one of them at most."""


@dataclass(frozen=True)
class Memory:
    """What a step needs.

    Attributes
    ----------
    planned_peak, arena
        Bytes.
    """

    planned_peak: int
    arena: int


@dataclass(frozen=True)
class RankModel:
    """A step as a function of its shape. Made by `fit_ranks`.

    Attributes
    ----------
    models
        By number of layers, one or two; by 0 where shapes have no such number.
    """

    models: Mapping[int, ShapeModel]

    def at(self, shape: Shape, *, alignment: int, **how: Any) -> Memory:
        """Plan the step at a shape.

        Parameters
        ----------
        shape
            With all numbers that the profiles' shapes have.
        alignment
            Bytes, of the plan's blocks.
        how
            Solver, time limit and threads, as for `stowplan.planning.make_plan`.

        Raises
        ------
        ProfileError
            The profiles do not tell the effect of one of its numbers.
        """
        within = {name: number for name, number in shape.items() if name != LAYERS}
        plans = {
            layers: make_plan(model.profile(within), alignment=alignment, **how)
            for layers, model in self.models.items()
        }
        found = {n: (plan.profile.planned_peak, plan.arena_bytes) for n, plan in plans.items()}
        if (LAYERS in shape) != (0 not in found):
            raise ProfileError(f"{LAYERS} in the shape or in the profiles only; expected it in both")
        wanted = shape.get(LAYERS, 0)
        if wanted in found:
            return Memory(*found[wanted])
        if len(found) < 2:
            raise ProfileError(
                f"{LAYERS}:{wanted}, and {LAYERS}:{min(found)} in all profiles; expected those of two numbers of layers"
            )
        low, high = sorted(found)
        return Memory(
            *(
                int(b + (b - a) * (wanted - high) / (high - low))
                for a, b in zip(found[low], found[high], strict=True)
            )
        )


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
        There are none, those of more than two numbers of layers, or `fit_shapes` cannot fit them.
    """
    mine = [
        (shape, profile)
        for shape, profile in profiles
        if (parallel in shape if parallel in SPLIT else not any(name in shape for name in SPLIT))
    ]
    if not mine:
        number = f"a number {parallel}" if parallel in SPLIT else f"neither of {', '.join(SPLIT)}"
        raise ProfileError(f"no profile with {number} in its shape; expected two or more")
    groups: dict[int, list[tuple[Shape, Profile]]] = {}
    for shape, profile in mine:
        within = {name: number for name, number in shape.items() if name != LAYERS}
        groups.setdefault(shape.get(LAYERS, 0), []).append((within, profile))
    if len(groups) > 2 or (0 in groups and len(groups) > 1):
        told = ", ".join(map(str, sorted(groups)))
        raise ProfileError(f"profiles of {told} layers; expected those of one or two numbers of layers")
    return RankModel({layers: fit_shapes(group) for layers, group in sorted(groups.items())})
