"""The pool for CuPy arrays in device memory: a drop-in for `cupy.cuda.set_allocator`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ...errors import MissingDependencyError, PoolError
from .._core import DevicePool, DeviceRouter, Lease
from ..options import documented
from ..pool import Pool
from .device_memory import OUT_OF_MEMORY, UNIT, SegmentPool
from .device_streams import PER_THREAD, DeviceStreams, on_device, streams_of
from .upstream_memory import UpstreamMemory

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..lanes import Lanes
    from ..options import Options

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
        planned, and the arena. None: the pool takes memory of the device itself, never more than has been live at a
        time, and arenas from its virtual memory, where they grow in place.
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
                f"CupyPool: {error}; expected: pip install 'stowplan[cupy]', or 'stowplan[rocm]' for AMD's devices"
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

    def _open(self, device: int) -> DevicePool:
        from cupy.cuda import MemoryPointer, UnownedMemory, memory_hook

        memory: SegmentPool | UpstreamMemory
        streams = self._streams(device)
        allocate = self._allocate
        if allocate is not None:
            memory = UpstreamMemory(self._upstream, allocate)
        elif _has_driver():
            memory = SegmentPool(device, streams)
            memory.set_limit(size=_default_limit(device))
        else:
            memory = UpstreamMemory(None, _malloc)  # CuPy says what is missing
        pool = DevicePool(
            device,
            memory,
            self._sampling or memory.malloc,
            MemoryPointer,
            UnownedMemory,
            streams,
            memory_hook.get_memory_hooks,
            _malloc_watched,
            _tell_freed,
        )
        pool.failed = _diagnosis(self, device)
        if isinstance(memory, SegmentPool):
            pool.use_virtual_memory(memory)
        if self._options.limit is not None:
            self._set_limit(memory if self._upstream is None else self._upstream, device)
        return pool

    def _set_limit(self, source: Any, device: int) -> None:
        with on_device(device) if _has_driver() else nullcontext():
            share = self._options.limit_share
            source.set_limit(size=self._options.limit_bytes(int) if share is None else None, fraction=share)

    def _streams(self, device: int) -> DeviceStreams | None:
        """Return the device's streams; None where there is no driver, and so no streams."""
        return streams_of(device) if _has_driver() else None

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        for lanes in self._all_lanes():
            if lanes.has_served():
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
        upstream = self._source()
        return int(upstream.total_bytes()) if hasattr(upstream, "total_bytes") else self.stats.reserved_bytes

    def free_bytes(self) -> int:
        """Return the bytes held but not used: `total_bytes` - `used_bytes`."""
        return self.total_bytes() - self.used_bytes()

    def n_free_blocks(self) -> int:
        """Return the number of free blocks that upstream holds."""
        return int(getattr(self._source(), "n_free_blocks", int)())

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give back the blocks that upstream holds free, and arenas in which nothing lives.

        The next step that has a plan takes its arena again.
        """
        self._pool_of(self._current_device()).give_back()
        upstream = self._source()
        if hasattr(upstream, "free_all_blocks"):
            upstream.free_all_blocks(stream=stream)

    def _source(self) -> Any:
        """Return what serves requests of the current device that are not planned."""
        return self._pool_of(self._current_device()).memory if self._upstream is None else self._upstream

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit what upstream may take from the current device; see ``cupy.cuda.MemoryPool.set_limit``.

        Raises
        ------
        PoolError
            Upstream knows no limit.
        """
        upstream = self._source()
        if not hasattr(upstream, "set_limit"):
            raise PoolError(f"upstream {upstream!r} knows no limit; expected a cupy.cuda.MemoryPool")
        upstream.set_limit(size=size, fraction=fraction)

    def get_limit(self) -> int:
        """Return upstream's limit in bytes, 0 for none."""
        return int(getattr(self._source(), "get_limit", int)())


def _diagnosis(pool: CupyPool, device: int) -> Callable[[BaseException], None]:
    """Return what has upstream's error of no memory tell what its request found.

    The reference is weak, because the pool has the core that calls this.
    """
    weak = weakref.ref(pool)

    def failed(error: BaseException) -> None:
        if (alive := weak()) is not None:
            alive._on(device).diagnose(error)

    return failed


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


def _default_limit(device: int) -> int:
    """Return the bytes that CuPy's pools are limited to, by ``CUPY_GPU_MEMORY_LIMIT``; 0: no limit."""
    import cupy

    with on_device(device):
        return int(cupy.cuda.MemoryPool().get_limit())


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
