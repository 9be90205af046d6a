"""How well a median is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def standard_error(values: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Estimate the standard error of the median of values (n,), normal but for outliers, by their quartiles."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(0.93 * (high - low) / np.sqrt(np.size(values)))  # 0.93: sqrt(pi / 2) / 1.349
