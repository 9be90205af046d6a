"""What a scheduler says of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SchedulerStats"]


@dataclass(frozen=True)
class SchedulerStats:
    """What a scheduler has done so far.

    Attributes
    ----------
    watched, recorded, timed, lean, scheduled
        Steps that ran so, to their end.
    departed
        Steps that began as scheduled, and turned out to have a structure without a schedule: they went on as lean ones.
    recomputed
        Operators that ran again, in all steps.
    schedules
        Structures with a schedule.
    keeps_gradients
        Why gradients are kept until all parameters are updated, as Chainer does; None: parameters are updated early.
    keeps_graph
        Why what a backward step has read is kept, as Chainer does; None: it goes.
    keeps_values
        Why values stay in memory that were to be evicted; None: none did.
    retained_bytes
        Of parameters, persistent values and the optimizer's state.
    planned_peak
        Bytes that the last schedule's step has alive beside these, at the most, as predicted; 0 without a schedule.
    extra_seconds
        That the last schedule costs in a step, as predicted.
    """

    watched: int = 0
    recorded: int = 0
    timed: int = 0
    lean: int = 0
    scheduled: int = 0
    departed: int = 0
    recomputed: int = 0
    schedules: int = 0
    keeps_gradients: str | None = None
    keeps_graph: str | None = None
    keeps_values: str | None = None
    retained_bytes: int = 0
    planned_peak: int = 0
    extra_seconds: float = 0.0
