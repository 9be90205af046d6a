"""lean: the schedule that costs no time: each update as soon as it may run; nothing recomputed, packed or swapped."""

from __future__ import annotations

from ..graph import StepGraph
from ..registry import SchedulingOptions, register
from ..schedule import Schedule
from ..schedule import lean as lean_schedule


@register("lean")
def lean(graph: StepGraph, options: SchedulingOptions) -> Schedule:
    """Return `stowplan.scheduling.lean`, whatever the budget."""
    return lean_schedule(graph)
