"""The plan: from a profile to a problem, its placement and what is ready to replay.

Names are loaded when they are first used: a pool is made long before it plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .plan import UNPLANNED, Plan, make_plan, problem_of
    from .store import MemoryStore, PlanStore
    from .store_directory import DirectoryStore

__all__ = [
    "UNPLANNED",
    "DirectoryStore",
    "MemoryStore",
    "Plan",
    "PlanStore",
    "make_plan",
    "problem_of",
]

_WHERE = {"DirectoryStore": "store_directory", "MemoryStore": "store", "PlanStore": "store"}

__getattr__ = lazily(__name__, {name: _WHERE.get(name, "plan") for name in __all__})
