"""What happened: recorders, the profile of a step, and the formats of files that hold one.

``recorders``          watch NumPy's or CuPy's allocations; ``steps``: the logs of two steps make a profile
``profile``            the blocks of one step, in columns
``scaling``            predicts profiles at other batch sizes, with ``sequence_matching``
``formats``            one file a format, and the registry of them
"""

from typing import TYPE_CHECKING, Any

from .profile import ESCAPED, Profile
from .recorders.numpy_recorder import NumpyRecorder
from .scaling import BatchModel, fit_batches
from .steps import ALLOCATE, FREE, StepLog, profile_step

if TYPE_CHECKING:
    from .recorders.cupy_recorder import CupyRecorder

__all__ = [
    "ALLOCATE",
    "ESCAPED",
    "FREE",
    "BatchModel",
    "CupyRecorder",
    "NumpyRecorder",
    "Profile",
    "StepLog",
    "fit_batches",
    "profile_step",
]


def __getattr__(name: str) -> Any:
    if name != "CupyRecorder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .recorders.cupy_recorder import CupyRecorder  # a class derived from one of CuPy's

    return CupyRecorder
