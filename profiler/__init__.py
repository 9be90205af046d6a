"""What happened: recorders, and the profile of a step."""

from typing import TYPE_CHECKING, Any

from .numpy_recorder import NumpyRecorder
from .profile import ESCAPED, Profile
from .scaling import BatchModel, fit_batches
from .steps import ALLOCATE, FREE, StepLog, profile_step

if TYPE_CHECKING:
    from .cupy_recorder import CupyRecorder

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
    from .cupy_recorder import CupyRecorder  # a class derived from one of CuPy's

    return CupyRecorder
