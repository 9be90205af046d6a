"""Will it fit? What a function of arrays, or a recorded step, needs at lengths at which it was never run.

``laws``         bytes as exact functions of lengths
``runs``         one call of a function, recorded
``arguments``    small arrays like the ones given, and which of their axes are lengths
``learning``     from runs on small arrays to laws
``switches``     sizes at which the code of a function switches
``prediction``   `predict`: the peak at any shape, the largest length that fits
``guarding``     `guard`: an error before a call that will not fit; ``saved``: the laws in the user's cache

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .guarding import available, guard
    from .prediction import Peak, Prediction, predict

__all__ = ["Peak", "Prediction", "available", "guard", "predict"]

__getattr__ = lazily(
    __name__,
    {
        "Peak": "prediction",
        "Prediction": "prediction",
        "available": "guarding",
        "guard": "guarding",
        "predict": "prediction",
    },
)
