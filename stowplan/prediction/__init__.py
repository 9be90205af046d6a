"""Will it fit? What a function of arrays, or a recorded step, needs at lengths at which it was never run.

``laws``         bytes as exact functions of lengths
``runs``         one call of a function, recorded
``arguments``    small arrays like the ones given, and which of their axes are lengths
``calls``        what a call is made of: names, shapes, stand-ins for large arrays
``learning``     from runs on small arrays to laws
``switches``     sizes at which the code of a function switches
``prediction``   `predict`: the peak at any shape, the largest length that fits
``steps``        profiles of recorded steps at other batches and shapes; ``ranks``: of one rank of many
``graphs``       step graphs at other batches; ``largest``: the largest batch that fits
``dask_resources``, ``pytest_plugin``    predicted peaks for Dask; pytest's mark ``peak``
``guarding``     `guard`: an error before a call that will not fit; ``saved``: the laws in the user's cache

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .graphs import fit_graphs
    from .guarding import available, guard
    from .largest import largest_batch, largest_lean_batch, largest_scheduled_batch, predict_schedules
    from .prediction import Peak, Prediction, predict
    from .ranks import fit_ranks
    from .steps import fit_steps

__all__ = [
    "Peak",
    "Prediction",
    "available",
    "fit_graphs",
    "fit_ranks",
    "fit_steps",
    "guard",
    "largest_batch",
    "largest_lean_batch",
    "largest_scheduled_batch",
    "predict",
    "predict_schedules",
]

__getattr__ = lazily(
    __name__,
    {
        "Peak": "prediction",
        "Prediction": "prediction",
        "available": "guarding",
        "fit_graphs": "graphs",
        "fit_ranks": "ranks",
        "fit_steps": "steps",
        "guard": "guarding",
        "largest_batch": "largest",
        "largest_lean_batch": "largest",
        "largest_scheduled_batch": "largest",
        "predict": "prediction",
        "predict_schedules": "largest",
    },
)
