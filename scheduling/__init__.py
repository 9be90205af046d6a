"""When, and what to keep: from a step graph and a budget to a schedule with a lower live peak."""

from .bounds import bound_orders, bound_schedules
from .check import check
from .formats import read_graph
from .graph import Phase, Relation, StepGraph
from .multi_stream_reuse import Reuse, check_reuse, read_streams, safe_reuse
from .registry import Answer, NotApplicable, SchedulingOptions, register
from .schedule import Rates, Schedule, Way, as_recorded, choices, lean, require_valid
from .simulate import Outcome, simulate, simulator
from .solve import Solution, curve, least, schedule

__all__ = [
    "Answer",
    "NotApplicable",
    "Outcome",
    "Phase",
    "Rates",
    "Relation",
    "Reuse",
    "Schedule",
    "SchedulingOptions",
    "Solution",
    "StepGraph",
    "Way",
    "as_recorded",
    "bound_orders",
    "bound_schedules",
    "check",
    "check_reuse",
    "choices",
    "curve",
    "lean",
    "least",
    "read_graph",
    "read_streams",
    "register",
    "require_valid",
    "safe_reuse",
    "schedule",
    "simulate",
    "simulator",
]
