"""What happened: recorders, the profile of a step, and the formats of files that hold one.

``recorders``          watch NumPy's, CuPy's or PyTorch's allocations; ``steps``: the logs of two steps make a profile
``profile``            the blocks of one step, in columns
``scaling``            predicts profiles at other batch sizes, with ``sequence_matching``
``shape_scaling``      predicts profiles at any shape, from small ones
``formats``            one file a format, and the registry of them

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .events import ALLOCATE, FREE
    from .profile import ESCAPED, Profile
    from .recorders.cupy_recorder import CupyRecorder
    from .recorders.numpy_recorder import NumpyRecorder
    from .recorders.torch_recorder import TorchRecorder
    from .scaling import BatchModel, fit_batches
    from .steps import StepLog, profile_step

__all__ = [
    "ALLOCATE",
    "ESCAPED",
    "FREE",
    "BatchModel",
    "CupyRecorder",
    "NumpyRecorder",
    "Profile",
    "StepLog",
    "TorchRecorder",
    "fit_batches",
    "profile_step",
]

__getattr__ = lazily(
    __name__,
    {
        "ALLOCATE": "events",
        "ESCAPED": "profile",
        "FREE": "events",
        "BatchModel": "scaling",
        "CupyRecorder": "recorders.cupy_recorder",  # a class derived from one of CuPy's
        "NumpyRecorder": "recorders.numpy_recorder",
        "Profile": "profile",
        "StepLog": "steps",
        "TorchRecorder": "recorders.torch_recorder",
        "fit_batches": "scaling",
        "profile_step": "steps",
    },
)
