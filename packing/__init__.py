"""Where to put it: from a problem (sizes, lifetimes, constraints) to a placement (offsets)."""

from .bounds import lower_bound, lower_bound_moment
from .check import check, check_fast
from .pack import PackingProgress, pack
from .placement import Placement
from .problem import Problem
from .registry import Answer, PackingOptions, register, solvers

__all__ = [
    "Answer",
    "PackingOptions",
    "PackingProgress",
    "Placement",
    "Problem",
    "check",
    "check_fast",
    "lower_bound",
    "lower_bound_moment",
    "pack",
    "register",
    "solvers",
]
