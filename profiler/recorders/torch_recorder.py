"""Record the steps of a PyTorch program on the host: what its CPU tensors request, on all threads.

While the recorder is entered, PyTorch's tensors come from the C library's heap, aligned as PyTorch aligns them, through
C functions that note every block (profiler/core/watched_heap.hpp). Operators allocate without the GIL, and on threads
of their own. So call sites are taken when an operator begins that no other one runs, by a PyTorch callback
profiler (`at::RecordFunction`), and hold for all that is requested until it ends::

    train.py:31 step > aten::linear                      an operator that the user's line calls
    train.py:33 step > AddmmBackward0 > aten::mm         one that autograd runs, on behalf of ``loss.backward()``

A thread that Python does not know, as those that compute within an operator, has the site of the one operator that
runs; where several run at once, it has none. This module imports PyTorch when a recorder is made.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from ...common.errors import PoolError
from .. import _recorder
from ..torch_library import recording_library
from .recorder import Recorder


class TorchRecorder(Recorder):
    """Watch the allocations of PyTorch's CPU tensors, and make a `Profile` of a step that repeats.

    A step is one of all threads, in the order of their requests. On first use a small library is compiled against the
    PyTorch that is installed, some ten seconds, and kept; see ``stowplan.profiler.torch_library``. What kernels take
    from the C library themselves is not seen, nor is memory of devices.

    Parameters
    ----------
    auto_step
        Find the step among the loops of the program, by the call sites of its requests, until a step is marked.
    sites
        Record the call site of each block: the innermost line of the user's own code, and the operator that asked.
    small
        Requests below this many bytes are not recorded.

    Raises
    ------
    PoolError
        Another recorder of PyTorch's is entered, or this one is entered twice.
    MissingDependencyError
        PyTorch is not installed, or there is no C++ compiler for the library.

    Examples
    --------
    ::

        recorder = TorchRecorder(sites=True)
        with recorder:
            for batch in batches:
                with recorder.step():
                    train(batch)
        profile = recorder.profile()
    """

    library = "PyTorch"

    def __init__(
        self, *, auto_step: bool = False, sites: bool | _recorder.CallSites = False, small: int = 0
    ) -> None:
        super().__init__(auto_step, sites)
        self._small = small
        self._compiled = recording_library()
        self._watch = self._heap = _recorder.HeapRecorder(small, self._sites)

    def _begin(self, undone: ExitStack) -> None:
        if not self._heap.watch():
            raise PoolError("another recorder of PyTorch's tensors is entered; expected one at a time")
        undone.callback(self._heap.leave)
        self._compiled.install(_recorder.watched_functions())
        undone.callback(self._compiled.uninstall)
        if self._sites is not None:
            undone.callback(_recorder.note_operators, None)
            undone.callback(self._compiled.ignore)
            _recorder.note_operators(self._sites)
            self._compiled.listen(_recorder.operator_listener())


os.register_at_fork(after_in_child=_recorder.forget_watcher)
