"""The pool for CuPy arrays in device memory: a drop-in for `cupy.cuda.set_allocator`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ...common.errors import MissingDependencyError, PoolError
from .._core import CudaPools, DevicePool, DeviceRouter, Lease, Scope
from ..options import documented
from ..pool import Pool
from .upstream_memory import UpstreamMemory

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..lanes import Lanes
    from ..options import Options

UNIT = 512
"""Bytes; what CuPy's own pool rounds sizes to, and what CUDA aligns to."""

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, hipErrorOutOfMemory."""

PER_THREAD = 2
"""CUDA's handle of the default stream that each thread has for itself."""

FORKED = (
    "this process was forked from one that had used the pool, and CUDA does not survive a fork: start workers with "
    "multiprocessing's start method 'spawn' or 'forkserver', or fork before the first array is made"
)


@documented
class CupyPool(Pool):
    """Serve CuPy's allocations, those of repeated steps from a plan. It keeps a limit as `set_limit` does.

    Parameters
    ----------
    upstream
        A CuPy allocator, ``f(size) -> cupy.cuda.MemoryPointer``, or an object with such a `malloc`: serves what is not
        planned, and the arena. None: the pool takes memory of the device's virtual memory, little more than has been
        live at a time, and arenas that grow in place.
    sample
        Where steps without a plan run: ``"device"``, or ``"managed"``, in CUDA's managed memory, which takes a step
        that does not fit the device (Sekiyama et al. 2018, section 5.1); its plan may fit.
    device
        The one device that is served. None: each request's current device, with an arena and plans for each. A number
        saves the question, and lets the pool run where there is no driver (with an ``upstream`` that needs none).
    options
        How to plan, as for all pools: `PlanningOptions`.

    Raises
    ------
    PoolError
        An argument is out of range, a step begins within a step, or in a fork of a process that has used the pool.
    UnknownSolverError
        There is no such solver.
    MissingDependencyError
        CuPy is not installed, or cannot be imported.

    Examples
    --------
    ::

        pool = CupyPool()
        cupy.cuda.set_allocator(pool.malloc)
        for batch in batches:
            with pool.step():
                train(batch)
    """

    alignment = UNIT

    malloc: Callable[[int], Any]
    """``malloc(size) -> cupy.cuda.MemoryPointer``: the allocator. Compiled."""

    def __init__(
        self,
        upstream: Any = None,
        *,
        sample: str = "device",
        device: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        try:
            import cupy
        except ImportError as error:
            raise MissingDependencyError(
                f"CupyPool: {error}; expected: pip install '.[cupy]' in stowplan's clone, or '.[rocm]' for AMD's"
            ) from error

        super().__init__(options)
        self._options.refuse_small("CuPy's arrays")
        if sample not in ("device", "managed"):
            raise PoolError(f"sample is {sample!r}; expected 'device' or 'managed'")
        if device is not None and (not isinstance(device, int) or isinstance(device, bool) or device < 0):
            raise PoolError(f"device is {device!r}; expected a device number, 0 or more, or None")
        self._upstream = None if upstream is None else _owner(upstream)
        self._allocate = getattr(self._upstream, "malloc", self._upstream)
        if upstream is not None and not callable(self._allocate):
            raise PoolError(
                f"upstream is {upstream!r}; expected an allocator: f(size) -> cupy.cuda.MemoryPointer"
            )
        self._sampling = functools.partial(_managed, weakref.ref(self)) if sample == "managed" else None
        self._device = device
        self._pools: list[CudaPools] = []  # one, once a device is used
        if (
            self._options.limit is not None
            and upstream is not None
            and not hasattr(self._upstream, "set_limit")
        ):
            raise PoolError(
                f"upstream {self._upstream!r} knows no limit; expected a cupy.cuda.MemoryPool, or no upstream"
            )
        if device is None:  # none is asked anything before it is used: that would make a context there
            # Where CuPy exports its C functions they are called: a request then runs none of Python's bytecode.
            exported = getattr(cupy.cuda.device, "__pyx_capi__", {})
            current_device = exported.get("get_device_id", cupy.cuda.device.get_device_id)
            self.malloc = DeviceRouter(current_device, self._pool_of).malloc
        else:
            self.malloc = self._pool_of(device).malloc

    def serving(self) -> AbstractContextManager[Any]:
        """Return a context manager in which the pool is this thread's allocator: ``cupy.cuda.using_allocator``."""
        import cupy

        manager: AbstractContextManager[Any] = cupy.cuda.using_allocator(self.malloc)
        return manager

    # ----------------------------------------------------------------------------------------------------- devices

    def _current_device(self) -> int:
        if self._device is not None:
            return self._device
        import cupy

        return int(cupy.cuda.device.get_device_id())

    def _told_lanes(self) -> Lanes | None:
        # A device of which nothing was requested is not asked for anything: that would make a context there.
        return self._by_device.get(self._current_device()) if self._by_device else None

    def _pool_of(self, device: int) -> DevicePool:
        pool: DevicePool = self._on(device).backend
        return pool

    def _table(self) -> int | None:
        """Return the address of a table of the driver's functions; 0: those that are loaded; None: no device."""
        return 0 if _has_driver() else None

    def _streams(self) -> tuple[Any, Any, Any] | None:
        """Return the functions that tell a `DevicePool` the current stream; None where there is no device."""
        if self._table() is None:
            return None
        import cupy
        from cupy_backends.cuda import stream

        # Where CuPy exports its C function it is called: a request then runs none of Python's bytecode.
        current = cupy.cuda.get_current_stream
        exported = getattr(stream, "__pyx_capi__", {})
        return exported.get("get_current_stream_ptr", lambda: current().ptr), current, cupy.cuda.Stream

    def _open(self, device: int) -> DevicePool:
        import cupy

        table = self._table()
        if not self._pools:
            self._pools.append(CudaPools(Scope.thread, 0, table))
        allocate = (
            _malloc if self._allocate is None and table is None else self._allocate
        )  # CuPy says what is missing
        pool = DevicePool(
            self._pools[0],
            device,
            None
            if allocate is None
            else UpstreamMemory(self._upstream, allocate, _asks_of_captures(allocate)),
            self._sampling,
            cupy.cuda.MemoryPointer,
            cupy.cuda.UnownedMemory,
            self._streams(),
            cupy.cuda.memory_hook.get_memory_hooks,
            _malloc_watched,
            _tell_freed,
            functools.partial(_refused, weakref.ref(self), device),
        )
        if allocate is None:
            pool.limit = _limit(device)  # by CUPY_GPU_MEMORY_LIMIT
        if self._options.limit is not None:
            share = self._options.limit_share
            size = self._options.limit_bytes(int) if share is None else None
            if self._upstream is None:
                pool.limit = _limit(device, size, share)
            else:
                with _on_device(device):
                    self._upstream.set_limit(size=size, fraction=share)
        return pool

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        for lanes in self._all_lanes():
            if lanes.has_served():
                self._pools[0].abandon()  # its locks may be held by threads that are not there
                lanes.refuse(FORKED)

    def _backend(self) -> str:
        if not _has_driver():
            return "cupy: no device"
        import cupy

        # Another model has other workspaces.
        return f"cupy: {cupy.cuda.runtime.getDeviceProperties(self._current_device())['name'].decode()}"

    # ----------------------------------------------------------------------------------------------------- streams

    def record_stream(self, array: Any, stream: Any) -> None:
        """Declare that an array is used on another stream than the one that was current when it was made.

        When its memory is free, it is not reused before that stream has finished the work queued by then:
        the pool records an event there, and the next block in its place waits for that. If you declare nothing, the
        pool reuses the memory in the order of the array's own stream, as ``cupy.cuda.MemoryPool`` does, and your
        program must wait for the other stream before it drops the array. PyTorch's ``Tensor.record_stream`` does the
        same.

        Parameters
        ----------
        array
            A ``cupy.ndarray``, or a view of one. Arrays that share its memory need no word of their own.
        stream
            A ``cupy.cuda.Stream``, but not ``cupy.cuda.Stream.ptds``, on which only its own thread can record an event.

        Raises
        ------
        PoolError
            The array's memory is not this pool's; the stream is every thread's own.
        """
        lease = getattr(array.data.mem, "_owner", None)
        if not isinstance(lease, Lease) or not any(
            lease.pool is lanes.backend for lanes in self._all_lanes()
        ):
            raise PoolError(f"the memory of this array of {array.nbytes} bytes is not this pool's")
        if stream.ptr == PER_THREAD:
            raise PoolError("the stream is cupy.cuda.Stream.ptds; expected one that all threads share")
        lease.pool.record_stream(lease, stream)

    # ------------------------------------------------------------------- what users know from cupy.cuda.MemoryPool

    def used_bytes(self) -> int:
        """Return the bytes requested and not freed, on the current device."""
        return self.stats.live_bytes

    def total_bytes(self) -> int:
        """Return the bytes taken from the device: arenas, and what upstream holds."""
        total = getattr(self._upstream, "total_bytes", lambda: self.stats.reserved_bytes)
        return int(total())

    def free_bytes(self) -> int:
        """Return the bytes held but not used: `total_bytes` - `used_bytes`."""
        return self.total_bytes() - self.used_bytes()

    def n_free_blocks(self) -> int:
        """Return the number of free blocks that upstream holds."""
        if self._upstream is None:
            return self._pool_of(self._current_device()).free_ranges
        return int(getattr(self._upstream, "n_free_blocks", int)())

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give back the blocks that upstream holds free, and arenas in which nothing lives.

        The next step that has a plan takes its arena again.
        """
        self._pool_of(self._current_device()).give_back()
        getattr(self._upstream, "free_all_blocks", lambda stream: None)(stream=stream)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit what upstream may take from the current device; see ``cupy.cuda.MemoryPool.set_limit``.

        Raises
        ------
        PoolError
            Upstream knows no limit.
        """
        device = self._current_device()
        if self._upstream is None:
            self._pool_of(device).limit = _limit(device, size, fraction)
        elif hasattr(self._upstream, "set_limit"):
            self._upstream.set_limit(size=size, fraction=fraction)
        else:
            raise PoolError(f"upstream {self._upstream!r} knows no limit; expected a cupy.cuda.MemoryPool")

    def get_limit(self) -> int:
        """Return upstream's limit in bytes, 0 for none."""
        if self._upstream is None:
            return self._pool_of(self._current_device()).limit
        return int(getattr(self._upstream, "get_limit", int)())


def _refused(
    pool: weakref.ref[CupyPool], device: int, size: int, status: int, own: BaseException | None
) -> BaseException:
    """Return the exception for a request that is refused; where there is no memory it tells what was found.

    The reference is weak, because the pool has the core that calls this.
    """
    from cupy.cuda.memory import OutOfMemoryError
    from cupy.cuda.runtime import CUDARuntimeError

    alive = pool()
    error = own
    if error is None and status != OUT_OF_MEMORY:
        error = CUDARuntimeError(status)
    elif error is None:
        limit = 0 if alive is None else alive._pool_of(device).limit
        error = OutOfMemoryError(-(-size // UNIT) * UNIT, 0 if alive is None else alive.total_bytes(), limit)
    if status == OUT_OF_MEMORY and alive is not None:
        alive._on(device).diagnose(error)
    return error


def _asks_of_captures(allocate: Any) -> Callable[[], bool] | None:
    """Return what tells whether the current stream is being captured, for ``cudaMallocAsync``; None for others."""
    from cupy import cuda

    is_ordered = allocate is cuda.malloc_async or isinstance(
        getattr(allocate, "__self__", None), cuda.MemoryAsyncPool
    )
    return (lambda: bool(cuda.get_current_stream().is_capturing())) if is_ordered else None


def _malloc(size: int) -> Any:
    """Return memory of the device itself."""
    from cupy.cuda import Memory, MemoryPointer

    return MemoryPointer(Memory(size), 0)


def _managed(pool: weakref.ref[CupyPool], size: int) -> Any:
    """Return managed memory. Without any, raise what CuPy's pools raise, and not what the driver does."""
    from cupy.cuda import malloc_managed, runtime
    from cupy.cuda.memory import OutOfMemoryError

    try:
        return malloc_managed(size)
    except runtime.CUDARuntimeError as error:
        if error.status != OUT_OF_MEMORY:
            raise
        alive = pool()
        raise OutOfMemoryError(size, 0 if alive is None else alive.used_bytes()) from error


def _owner(upstream: Any) -> Any:
    """Return the `cupy.cuda.MemoryPool` that an allocator is the `malloc` of; else the allocator itself."""
    import cupy

    owner = getattr(upstream, "__self__", None)
    return owner if isinstance(owner, cupy.cuda.MemoryPool) else upstream


def _limit(device: int, size: int | None = None, fraction: float | None = None) -> int:
    """Return the bytes that CuPy's pools are limited to so: it knows how a fraction is meant, and what is wrong."""
    import cupy

    if not _has_driver():
        return size or 0
    scratch = cupy.cuda.MemoryPool()  # whose limit is that of CUPY_GPU_MEMORY_LIMIT; 0: none
    with _on_device(device):
        if size is not None or fraction is not None:
            scratch.set_limit(size=size, fraction=fraction)
        return int(scratch.get_limit())


def _on_device(device: int) -> AbstractContextManager[Any]:
    """Return a context manager in which this is the thread's current device.

    Where it is already, no device is set afterwards: to go back to one, such as the first one, on which every thread
    begins, makes a context there.
    """
    import cupy

    is_current = not _has_driver() or cupy.cuda.device.get_device_id() == device
    manager: AbstractContextManager[Any] = nullcontext() if is_current else cupy.cuda.Device(device)
    return manager


def _has_driver() -> bool:
    """Whether there is a CUDA driver; without one there are no streams either."""
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------- memory hooks


def _malloc_watched(pool: DevicePool, size: int, hooks: dict[str, Any]) -> Any:
    """Serve a request while memory hooks watch, and tell them what CuPy's own pool would.

    What comes from a CuPy pool has been told by that pool.
    """
    from cupy.cuda.memory import PooledMemory

    memory, lease = pool.malloc_watched(size)
    if lease.memory is not None and isinstance(lease.memory.mem, PooledMemory):
        return memory
    rounded = -(-size // UNIT) * UNIT
    block = {
        "device_id": pool.device,
        "mem_size": rounded,
        "mem_ptr": memory.ptr,
        "pmem_id": id(memory.mem),
    }
    for hook in hooks.values():
        hook.malloc_preprocess(device_id=pool.device, size=size, mem_size=rounded)
    if size > 0:
        lease.event = block  # CuPy's pool does not tell of the end of an empty block
    for hook in hooks.values():
        hook.malloc_postprocess(size=size, **block)
    return memory


def _tell_freed(block: dict[str, Any], hooks: dict[str, Any]) -> None:
    """Tell memory hooks of the end of a block, as CuPy's own pool does: from the finalizer."""
    for hook in hooks.values():
        hook.free_preprocess(**block)
    for hook in hooks.values():
        hook.free_postprocess(**block)
