"""What happened: recorders, and the profile of a step."""

from .numpy_recorder import NumpyRecorder
from .profile import ESCAPED, Profile
from .steps import StepLog, profile_step

__all__ = ["ESCAPED", "NumpyRecorder", "Profile", "StepLog", "profile_step"]
