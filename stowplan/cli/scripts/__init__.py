"""Running a user's script unchanged, and watching or serving its arrays: what ``stowplan run`` and ``profile`` do.

=========================  =============================================================================================
``script``                 runs what ``python`` runs, as ``python`` runs it: a file, a module, a folder, an archive
``step_functions``         marks its step function, by name
``step_markers``           ``stowplan.step()``: passes the steps that a program marks to the pools or recorders entered
``serving``                serves a program, and prints what its pools counted
``auto_pools``             serves NumPy, and CuPy once the script imports it, by pools
``auto_recorders``         records the requests of both in the same way
``marked_graph_recorder``  records the step graph of marked training steps of Chainer's
=========================  =============================================================================================
"""

from __future__ import annotations

from .script import Script

__all__ = ["Script"]
