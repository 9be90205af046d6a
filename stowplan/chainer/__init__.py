"""Chainer on a pool: its Trainer in steps, and schedules that lower what a training step has alive.

===================  ===================================================================================================
module               what it is
===================  ===================================================================================================
``training``         the updater, evaluators and report for `chainer.training`
``scheduler``        steps that are lean, or keep to a budget: watched, recorded, scheduled
``execution``        one step under a schedule: what is let go, when, and how it comes back; enters at the ``seams``
``capture``          from a step that runs to its step graph; its bytes by the ``meter``
``directions``       a schedule in Chainer's terms, and whether a step is the one that it was made for
``rerun``            running a function once more, and whether it may be
``early``            updating a parameter as soon as its gradient is complete; in pieces, ``updates``
``masks``            packing masks to bits
``swapping``         values in a file, or in pinned memory (``pinned``)
``links``            reversible layers
===================  ===================================================================================================

Importing this package imports Chainer, by `stowplan.compat.enable_chainer`: an ``import chainer`` after it works on
today's NumPy and Python.
"""

from .scheduler import Scheduler, SchedulerStats, record_graph
from .training import MemoryReport, Updater, evaluate_in_steps, update_in_steps

__all__ = [
    "MemoryReport",
    "Scheduler",
    "SchedulerStats",
    "Updater",
    "evaluate_in_steps",
    "record_graph",
    "update_in_steps",
]
