"""Record the steps of a CuPy program under CuPy's own pool, without replacing it.

CuPy calls a memory hook for every block that its pool hands out and takes back; the log is made of these calls (see
profiler/core/told_blocks.hpp). Two cases have no call, and are completed: if an address is handed out again, its block
has been freed on another thread (whose events go to that thread's hooks); and an empty block has no address, and ends
at once. A request that failed has none either, and is left out.

This module imports CuPy: `stowplan.profiler` imports it when `CupyRecorder` is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from ...common.errors import MissingDependencyError
from .._recorder import CallSites, ToldRecorder
from .recorder import Recorder

try:
    import cupy
except ImportError as missing:
    raise MissingDependencyError(
        f"CuPy cannot be imported ({missing}); expected: pip install '.[cupy]' in stowplan's clone"
    ) from missing


class CupyRecorder(Recorder, cupy.cuda.MemoryHook):  # type: ignore[misc]
    """Watch this thread's CuPy allocations, and make a `Profile` of a step that repeats.

    A ``cupy.cuda.MemoryHook``: it does not change the allocator, nor addresses. It reads the wall clock at every
    allocation and every free. The stream of a block is the current one of its allocation, or 0 if there is no CUDA
    driver to ask.

    Parameters
    ----------
    device
        Record blocks of this device only. None: of all.
    auto_step
        Find the step among the loops of the program, by the call sites of its requests, until a step is marked.
    sites
        Record the call site of each block: the innermost line of the user's own code, and, if Chainer has been imported
        when the recorder is entered, the link and the function that asked.
    small
        Requests below this many bytes are not recorded.

    Raises
    ------
    PoolError
        The recorder is entered twice.
    MissingDependencyError
        CuPy is not installed; on the first use of the name.

    Examples
    --------
    ::

        recorder = CupyRecorder()
        with recorder:
            for batch in batches:
                with recorder.step():
                    train(batch)
        profile = recorder.profile()
    """

    library = "CuPy"

    def __init__(
        self,
        device: int | None = None,
        *,
        auto_step: bool = False,
        sites: bool | CallSites = False,
        small: int = 0,
    ) -> None:
        super().__init__(auto_step, sites)
        self.name = f"stowplan.CupyRecorder {id(self)}"  # CuPy keeps one hook of a name
        self._device, self._small = device, small
        self._stream = _current_stream()
        self._watch = self._told = ToldRecorder(small, self._sites)
        self.free_postprocess = self._told.free_postprocess

    def _begin(self, undone: ExitStack) -> None:
        cupy.cuda.MemoryHook.__enter__(self)
        undone.push(partial(cupy.cuda.MemoryHook.__exit__, self))

    def malloc_postprocess(self, *, device_id: int, size: int, mem_ptr: int, **_: Any) -> None:
        """Note a block that a pool has handed out."""
        if self._device is None or device_id == self._device:
            self._told.allocated(mem_ptr, size, self._stream())


def _current_stream() -> Callable[[], int]:
    """Return a function that returns the address of the current stream."""
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return lambda: 0
    return lambda: int(cupy.cuda.get_current_stream().ptr)
