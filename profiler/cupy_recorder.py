"""Record the steps of a CuPy program under CuPy's own pool, without replacing it.

CuPy tells a memory hook of every block that its pool hands out and takes back; the log is made of that (see
profiler/core/told_blocks.hpp). Where CuPy does not tell, the log says what must have been: a block whose address is
handed out again has been freed, on another thread (whose events go to that thread's hooks); and an empty block, or one
that could not be had, has no address and ends at once.

This module imports CuPy: `stowplan.profiler` imports it when `CupyRecorder` is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import MissingDependencyError
from ._recorder import CallSites, ToldRecorder
from .recorder import Recorder

try:
    import cupy
except ImportError as missing:
    raise MissingDependencyError(
        f"CuPy cannot be imported ({missing}); expected: pip install 'stowplan[cupy]'"
    ) from missing


class CupyRecorder(Recorder, cupy.cuda.MemoryHook):  # type: ignore[misc]
    """Watch this thread's CuPy allocations, and make a `Profile` of a step that repeats.

    A `cupy.cuda.MemoryHook`: the allocator stays what it is, and addresses are as without the recorder. The wall clock
    is read at every allocation and every free; the stream of a block is the current one of its allocation, or 0 where
    there is no CUDA driver to ask.

    Parameters
    ----------
    device
        Blocks of this device only. None: of all.
    auto_step
        Find the step that the program repeats, until one is marked. The profile is that of the largest one found.
    sites
        Note the call site of each block: the innermost line of the user's own code, and, where Chainer has been
        imported when the recorder is entered, the link and the function that asked.
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
        self._device = device
        self._stream = _current_stream()
        self._watch = self._told = ToldRecorder(small, self._sites)
        self.free_postprocess = self._told.free_postprocess

    def __enter__(self) -> CupyRecorder:
        self._enter()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._exit()

    @property
    def requests(self) -> int:
        """Requests seen so far, in steps or not."""
        return self._told.requests

    def malloc_postprocess(self, *, device_id: int, size: int, mem_ptr: int, **_: Any) -> None:
        """Note a block that a pool has handed out."""
        if self._device is None or device_id == self._device:
            self._told.allocated(mem_ptr, size, self._stream())


def _current_stream() -> Callable[[], int]:
    """Return how to ask for the address of the current stream."""
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return lambda: 0
    return lambda: int(cupy.cuda.get_current_stream().ptr)
