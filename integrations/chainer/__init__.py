"""Chainer on a pool: its Trainer in steps, and schedules that lower what a training step has alive.

=========================  =============================================================================================
floor                      module, and what it is
=========================  =============================================================================================
what a program calls       ``training``: the updater, evaluators and report for ``chainer.training``;
                           ``graph_recorder``: a step graph alone; ``scheduler``: runs steps lean or in a budget, and
                           watches and records; ``known``: what it knows of them, schedules and statistics
steps                      ``recorder``: one that becomes a step graph, or whose operators are timed; ``execution``:
                           any scheduled one; ``backward_pass``: its loop over operators, and sums in place
a step's arrays            ``values``: lets them go, and brings them back; ``sparing``: what goes under a budget while
                           there is no schedule
what a schedule asks for   ``schedule_follower``: the one that a running step follows; ``rerun``: runs a function once
                           more; ``evictions``: which values go to a file or to pinned memory, and when;
                           ``optimizer_in_backward``: updates as soon as a gradient is complete, in pieces (``updates``)
what is looked at          ``written``: writes of the program; ``meter``: bytes of what outlives a step, and of
                           operators; ``parameter_swap``: parameters that are out of memory
the ground                 ``patches``: where a step enters Chainer; ``function_state``: what it notes there, which
                           arrays a function's backward step reads, and what of its attributes goes;
                           ``graph_builder``: rows, storages, edges; ``bit_packing``, ``im2col``: arrays alone
=========================  =============================================================================================

Importing this package imports Chainer, by `stowplan.compat.enable_chainer`.
"""

from ..compat import enable_chainer

enable_chainer()

from .graph_recorder import record_graph  # noqa: E402 (Chainer is mended first)
from .known import SchedulerStats  # noqa: E402
from .rerun import trust  # noqa: E402
from .scheduler import Scheduler  # noqa: E402
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
