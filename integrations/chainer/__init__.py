"""Chainer on a pool: its Trainer in steps, and schedules that lower what a training step has alive.

===================  ===================================================================================================
module               what it is
===================  ===================================================================================================
``training``         the updater, evaluators and report for ``chainer.training``
``scheduler``        runs steps lean or within a budget: watches, records and schedules them
``execution``        one step under a schedule; enters Chainer at the ``seams``, and the optimizer's ``updating``
``values``           lets a step's arrays go, and brings them back; ``gradients`` are summed in place
``function_state``   what a step notes on a function that it applies
``sparing``          what goes under a budget while there is no schedule
``capture``          records a running step as a step graph, its bytes by the ``meter``; ``graph_recorder``: only that
``graph_builder``    the graph that is being recorded: rows, storages, edges; knows nothing of Chainer
``directions``       a schedule in Chainer's terms; finds the one that a running step follows
``rerun``            runs a function once more, and finds out if it may be
``early``            updates a parameter as soon as its gradient is complete, in pieces (``updates``), unless the
                     program itself reads gradients (``gradient_reads``)
``masks``            packs masks to bits
``evictions``        which values go to a file (`stowplan.swapping`) or to pinned memory (``pinned``), and when
===================  ===================================================================================================

Importing this package imports Chainer, by `stowplan.compat.enable_chainer`.
"""

from ..compat import enable_chainer

enable_chainer()

from .graph_recorder import record_graph  # noqa: E402 (Chainer is mended first)
from .rerun import trust  # noqa: E402
from .scheduler import Scheduler  # noqa: E402
from .scheduler_stats import SchedulerStats  # noqa: E402
from .training import MemoryReport, Updater, evaluate_in_steps, update_in_steps  # noqa: E402

__all__ = [
    "MemoryReport",
    "Scheduler",
    "SchedulerStats",
    "Updater",
    "evaluate_in_steps",
    "record_graph",
    "trust",
    "update_in_steps",
]
