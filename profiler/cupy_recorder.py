"""Record the steps of a CuPy program under CuPy's own pool, without replacing it.

CuPy tells a memory hook of every block that its pool hands out and takes back; the log is made of that::

    CuPy's events                                  the step's log
    malloc_postprocess(size, mem_ptr=a)            request 0
    malloc_postprocess(size, mem_ptr=b)            request 1
    free_postprocess(mem_ptr=a)                    free of request 0

Where CuPy does not tell, the log says what must have been: a block whose address is handed out again has been freed, on
another thread (whose events go to that thread's hooks); and an empty block, or one that could not be had, has no
address and ends at once.

This module imports CuPy: `stowplan.profiler` imports it when `CupyRecorder` is first used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import MissingDependencyError, PoolError
from .recorder import Recorder
from .steps import ALLOCATE, EVENT_DTYPE, FREE, FREE_PREVIOUS

try:
    import cupy
except ImportError as missing:
    raise MissingDependencyError(
        f"CuPy cannot be imported ({missing}); expected: pip install 'stowplan[cupy]'"
    ) from missing


class _Born(NamedTuple):
    """A live block: the step and the request that made it, bytes, stream."""

    step: int
    request: int
    size: int
    stream: int


class CupyRecorder(Recorder, cupy.cuda.MemoryHook):  # type: ignore[misc]
    """Watch this thread's CuPy allocations, and make a `Profile` of a step that repeats.

    A `cupy.cuda.MemoryHook`: the allocator stays what it is, and addresses are as without the recorder. The wall clock
    is read at every allocation and every free; the stream of a block is the current one of its allocation, or 0 where
    there is no CUDA driver to ask.

    Parameters
    ----------
    device
        Blocks of this device only. None: of all.

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

    def __init__(self, device: int | None = None) -> None:
        super().__init__()
        self.name = f"stowplan.CupyRecorder {id(self)}"  # CuPy keeps one hook of a name
        self._device = device
        self._stream = _current_stream()
        self._entered = self._in_step = False
        self._events: list[tuple[int, int, int, int, int]] = []  # as EVENT_DTYPE
        self._live: dict[int, _Born] = {}  # by address: CuPy's pmem_id is an id(), and comes again
        self._step = 1  # the running step, or, between steps, the coming one
        self._requests = 0

    def __enter__(self) -> CupyRecorder:
        if self._entered:
            raise PoolError("this recorder is entered already")
        super().__enter__()
        self._entered = True
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._entered = False

    # ------------------------------------------------------------------------------------------------- what CuPy tells

    def malloc_postprocess(self, *, device_id: int, size: int, mem_ptr: int, **_: Any) -> None:
        """Note a block that a pool has handed out."""
        if self._device is not None and device_id != self._device:
            return
        self._freed(mem_ptr)
        if not self._in_step:
            return
        born = _Born(self._step, self._requests, size, self._stream())
        self._requests += 1
        self._note(ALLOCATE, born)
        if mem_ptr == 0:
            self._note(FREE, born)
        else:
            self._live[mem_ptr] = born

    def free_postprocess(self, *, mem_ptr: int, **_: Any) -> None:
        """Note a block that a pool has taken back. Runs in finalizers: it appends, and no more."""
        self._freed(mem_ptr)

    def _freed(self, address: int) -> None:
        born = self._live.pop(address, None)
        if born is None:
            return  # born outside of every step
        if born.step == self._step:
            self._note(FREE, born)
        elif born.step + 1 == self._step:
            self._note(FREE_PREVIOUS, born)

    def _note(self, kind: int, born: _Born) -> None:
        self._events.append((time.time_ns(), born.size, born.stream, born.request, kind))

    # ----------------------------------------------------------------------------------------------------------- steps

    def _begin_step(self) -> bool:
        if self._in_step:
            return False
        self._in_step, self._requests = True, 0
        return True

    def _end_step(self) -> tuple[npt.NDArray[np.void], bool]:
        # Frees until the next step begins open its log.
        events, self._events = self._events, []
        self._in_step = False
        self._step += 1
        return np.array(events, dtype=EVENT_DTYPE), True


def _current_stream() -> Callable[[], int]:
    """Return how to ask for the address of the current stream."""
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return lambda: 0
    return lambda: int(cupy.cuda.get_current_stream().ptr)
