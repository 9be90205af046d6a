"""The plan: from a profile to a problem, its placement and what is ready to replay.

Names are loaded when they are first used: a pool is made long before it plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazily

if TYPE_CHECKING:
    from .plan import UNPLANNED, Plan, make_plan, problem_of

__all__ = [
    "UNPLANNED",
    "Plan",
    "make_plan",
    "problem_of",
]

__getattr__ = lazily(__name__, dict.fromkeys(__all__, "plan"))
