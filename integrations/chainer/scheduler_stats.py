"""The statistics of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SchedulerStats:
    """Counts of a scheduler's steps, and its predictions.

    Attributes
    ----------
    watched
        Steps that ran as Chainer runs them, to their end.
    recorded
        Steps that were recorded, to their end.
    timed
        Steps that were timed, to their end.
    lean
        Steps that ran lean, to their end.
    scheduled
        Steps that ran as scheduled, to their end.
    departed
        Steps that began as scheduled, and turned out to have a structure without a schedule: they went on as lean ones.
    recomputed
        Operators that ran again, in all steps.
    swapped
        Values that were evicted and fetched, in all steps.
    swapped_parameters
        Parameters, and arrays of their state, that were fetched, in all steps and between them.
    schedules
        Structures with a schedule.
    keeps_gradients
        Why gradients are kept until all parameters are updated, as Chainer does; None: parameters are updated early.
    keeps_graph
        Why arrays are kept after the last backward step that reads them, as Chainer does; None: they are freed.
    keeps_parameters
        Why parameters stay in memory that were to be swapped; None: none does.
    keeps_values
        Why values that were to be evicted stayed in memory; None: none did.
    unrecorded
        Why steps of a structure that came again run lean, without a schedule: how recording one failed; None: none did.
    retained_bytes
        Bytes of parameters, persistent values, the optimizer's state, and gradients that steps without an update leave;
        without those that are swapped. Parameters that no optimizer has count from the recorded step on.
    planned_peak
        Most bytes that the last schedule's step has alive besides these, as predicted; 0 without a schedule.
    extra_seconds
        Seconds that the last schedule costs in a step, as predicted.
    """

    watched: int = 0
    recorded: int = 0
    timed: int = 0
    lean: int = 0
    scheduled: int = 0
    departed: int = 0
    recomputed: int = 0
    swapped: int = 0
    swapped_parameters: int = 0
    schedules: int = 0
    keeps_gradients: str | None = None
    keeps_graph: str | None = None
    keeps_parameters: str | None = None
    keeps_values: str | None = None
    unrecorded: str | None = None
    retained_bytes: int = 0
    planned_peak: int = 0
    extra_seconds: float = 0.0
