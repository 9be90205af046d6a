"""The plan: from a profile to a problem, its placement and what is ready to replay.

Names are loaded when they are first used: a pool is made long before it plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plan import UNPLANNED, Plan, make_plan, problem_of

__all__ = ["UNPLANNED", "Plan", "make_plan", "problem_of"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import plan

    value = getattr(plan, name)
    globals()[name] = value
    return value
