"""The events of a step's log, as the recorders write them down: a structured array. A leaf: it imports NumPy alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

# Mirrors `Event` in common/core/step_recorder.hpp.
EVENT_DTYPE = np.dtype(
    [("time_ns", "i8"), ("size", "i8"), ("stream", "i8"), ("request", "u4"), ("kind", "i1")], align=True
)
ALLOCATE, FREE, FREE_PREVIOUS = 0, 1, 2
"""A free's kind is `FREE`, and one more for each step that has passed since its block's."""
