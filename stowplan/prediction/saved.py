"""Models as JSON, for the user's cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arguments import Lengths
from .laws import Grid, Laws
from .learning import Model, Moment

__all__ = ["as_json", "from_json"]

_PLAIN = ("names", "least_bytes", "largest", "only_equal", "runs", "seconds", "cannot_tell")


def as_json(models: Mapping[str, Model]) -> dict[str, Any]:
    """Return models, by their keys, as what JSON holds."""
    return {
        key: {
            **{name: getattr(one, name) for name in _PLAIN},
            "axes": one.lengths.axes,
            "weight": one.lengths.weight,
            "grid": [one.laws.grid.base, one.laws.grid.step, one.laws.grid.degree],
            "differences": one.laws.differences.tolist(),
            "moments": [[m.live, m.results, m.lines, m.rounds] for m in one.moments],
            "below": one.below,
        }
        for key, one in models.items()
    }


def from_json(text: Mapping[str, Any]) -> dict[str, Model]:
    """Return what `as_json` was given."""
    found = {}
    for key, one in text.items():
        base, step, degree = one["grid"]
        grid = Grid(tuple(base), tuple(step), degree)
        differences = np.array(one["differences"], dtype=object).reshape(-1, len(grid.steps))
        axes = tuple(tuple((argument, axis) for argument, axis in axes) for axes in one["axes"])
        plain: dict[str, Any] = {
            name: tuple(one[name]) if isinstance(one[name], list) else one[name] for name in _PLAIN
        }
        found[key] = Model(
            lengths=Lengths(axes, tuple(one["weight"])),
            laws=Laws(grid, differences),
            moments=tuple(Moment(*moment) for moment in one["moments"]),
            below=tuple((i, j) for i, j in one["below"]),
            **plain,
        )
    return found
