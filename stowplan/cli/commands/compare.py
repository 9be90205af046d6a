"""``stowplan compare``: what other pools would reserve for a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import _look
from ._options import planning_options, profile_argument
from ._reporter import Answer, reporter


@reporter("Compare what memory pools would reserve for a step.", "compare step.profile")
@profile_argument
@planning_options
def compare(profile: Path, **how: Any) -> Answer:
    """Compare what pools would reserve for the step of PROFILE with stowplan's plan.

    PROFILE is any file that stowplan convert reads. The step is replayed through models of the pools of CuPy, PyTorch
    (with and without expandable segments), RMM and Chainer 1, and of no pool, until each stops growing. For a NumPy
    profile these are hypothetical, and the C library's malloc is measured. What the plan saves is a share of the
    program's memory: older and escaped blocks, and what the pool reserves.
    """
    found = _look.compared(profile, how)
    lines = (f"{profile}: {_look.counts(found.plan)}", *_look.program_lines(found.plan.profile), "")
    return Answer(_look.memory_figures(profile, found), (*lines, _look.memory_table(found), _look.WORDS))
