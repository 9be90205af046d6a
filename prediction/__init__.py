"""Will it fit? What a function of arrays, or a recorded step, needs at lengths at which it was never run.

``prediction``       the peak at any shape, the largest length that fits, from one of two sources:
``functions``        `predict`, of a function, by ``shape_variables``, a ``traced_run`` in a ``child`` process, and
                     ``fit_function`` of a ``model``, which ``larger`` runs check
``profile_scaling``  profiles of recorded steps, and the largest batch that fits
``size_formulas``    bytes as exact functions of lengths; ``peak_candidates``: those alive at each moment of a run
``guarding``         `guard`: an error before a call that will not fit
``dask_resources``, ``pytest_plugin``    predicted peaks for Dask; pytest's mark ``peak``

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazily

if TYPE_CHECKING:
    from .child import available
    from .functions import predict
    from .guarding import guard
    from .prediction import Peak, Prediction
    from .profile_scaling import fit_steps

__all__ = ["Peak", "Prediction", "available", "fit_steps", "guard", "predict"]

__getattr__ = lazily(
    __name__,
    {
        **dict.fromkeys(("Peak", "Prediction"), "prediction"),
        "available": "child",
        "guard": "guarding",
        "predict": "functions",
        "fit_steps": "profile_scaling",
    },
)
