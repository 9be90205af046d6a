"""When, and what to keep: from a step graph and a budget to a schedule with a lower live peak."""

from .graph import Phase, Relation, StepGraph
from .schedule import Rates, Schedule, Way, as_recorded, choices, lean, require_valid

__all__ = [
    "Phase",
    "Rates",
    "Relation",
    "Schedule",
    "StepGraph",
    "Way",
    "as_recorded",
    "choices",
    "lean",
    "require_valid",
]
