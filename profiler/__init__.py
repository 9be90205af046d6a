"""What happened: recorders, the profile of a step, and the formats of files that hold one.

``recorders``          watch NumPy's, CuPy's or PyTorch's allocations; ``steps``: the logs of two steps make a profile
``profile``            the blocks of one step, in columns
``formats``            one file a format, and the registry of them

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazily

if TYPE_CHECKING:
    from .events import ALLOCATE, FREE
    from .profile import ESCAPED, Profile
    from .recorders.cupy_recorder import CupyRecorder
    from .recorders.numpy_recorder import NumpyRecorder
    from .recorders.torch_recorder import TorchRecorder
    from .steps import StepLog, profile_step

__all__ = [
    "ALLOCATE",
    "ESCAPED",
    "FREE",
    "CupyRecorder",
    "NumpyRecorder",
    "Profile",
    "StepLog",
    "TorchRecorder",
    "profile_step",
]

__getattr__ = lazily(
    __name__,
    {
        **dict.fromkeys(("ALLOCATE", "FREE"), "events"),
        **dict.fromkeys(("ESCAPED", "Profile"), "profile"),
        **dict.fromkeys(("StepLog", "profile_step"), "steps"),
        "CupyRecorder": "recorders.cupy_recorder",  # a class derived from one of CuPy's
        "NumpyRecorder": "recorders.numpy_recorder",
        "TorchRecorder": "recorders.torch_recorder",
    },
)
