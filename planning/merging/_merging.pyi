"""Binding of the matching core (planning/merging/core): columns in, numbers out; the GIL is released while matching."""

import numpy as np
import numpy.typing as npt

_Column = npt.NDArray[np.int64]

def match(
    least: _Column,
    most: _Column,
    kind: _Column,
    size: _Column,
    step_kind: _Column,
    vote: _Column,
    first: _Column,
    last: _Column,
) -> _Column:
    """Return each request's number in a plan, int64 (m,), -1 for none; see planning/merging/core/match.hpp.

    All columns are int64: `least`, `most`, `kind` (n,) of the plan, `size`, `step_kind`, `vote` (m,) of the step, and
    the band `first`, `last` (n + 1,).

    Raises
    ------
    ValueError
        The columns disagree in length, or the band does not lead from one corner to the other.
    """
