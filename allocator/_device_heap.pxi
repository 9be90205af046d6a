# The heap of a device for CuPy: core/device/device_heap.hpp. Included by _core.pyx.

cdef extern from "device_pool.hpp" namespace "stowplan::allocator" nogil:
    int64_t _stream_of_thread "stowplan::allocator::stream_of_thread"()


def stream_of_thread() -> int:
    """Return what stands for the calling thread's own default stream; no other thread ever has it."""
    return _stream_of_thread()


cdef CudaApi _driver


def while_capturing(call: Callable[[], Any]) -> Any:
    """Return what a call returns that asks the driver, or waits, while any thread may be capturing streams."""
    cdef int mode = kCudaRelaxed
    if _driver.exchange_capture_mode == NULL and not find_driver(_driver).empty():
        return call()
    _driver.exchange_capture_mode(&mode)
    try:
        return call()
    finally:
        _driver.exchange_capture_mode(&mode)


#: SHARED: int
SHARED = kShared


# What the heap asks of the streams. None of it runs Python's bytecode, in which a signal's handler could run.


cdef int _record_event(void* owner, int64_t stream, CudaEvent& event) noexcept with gil:
    cdef HeapCore heap = <HeapCore>owner
    if stream >= 0 and heap.kept is not None:
        kept = heap.kept.get(stream)
        if isinstance(kept, ref):
            kept = kept()
        if kept is None:  # it has been dropped, or nobody holds it now
            return kCudaCaptureUnsupported
        return record_event(heap.api, heap.device, stream, event)  # `kept` holds the stream meanwhile
    return record_event(heap.api, heap.device, stream, event)


cdef cbool _any_captured(void* owner) noexcept with gil:
    cdef HeapCore heap = <HeapCore>owner
    if heap.kept is None:
        return False
    for handle in list(heap.kept):
        if is_capturing(heap.api, handle):
            return True
    return False


@cython.final
@cython.no_gc_clear
cdef class HeapCore:
    """Owns a heap, and tells it of streams; outlives its `DeviceHeap` where a capture forbids to give memory back."""

    cdef CDeviceHeap* core
    cdef CudaApi api
    cdef int device
    cdef dict kept  # the streams, by handle

    def __dealloc__(self):
        if self.core != NULL and not stow_is_finalizing():
            del self.core


@cython.no_gc_clear  # blocks that die in a cycle are given back to it
cdef class DeviceHeap:
    """What no plan serves on a device, and the account of all that its pool holds: core/device/device_heap.hpp.

    Parameters
    ----------
    device
        Device number.
    streams
        Its `DeviceStreams`; None: no capture is looked for.
    table
        Address of a table of functions (core/device/cuda_api.hpp); 0: those of the driver that the process has loaded.

    Raises
    ------
    PoolError
        There is no driver, or it lacks a function.
    """

    cdef CDeviceHeap* core
    cdef object streams
    cdef object owner  # of the core
    cdef object __weakref__

    def __cinit__(self, int device, streams: Any = None, uintptr_t table=0):
        cdef string missing
        cdef HeapOwner owner
        cdef HeapCore held = HeapCore.__new__(HeapCore)
        if device < 0:  # see heap_of()
            return
        if table != 0:
            held.api = (<CudaApi*>table)[0]
        else:
            missing = find_driver(held.api)
        if not missing.empty():
            raise PoolError(f"no driver with {missing.decode()}")
        held.device, self.streams = device, streams
        held.kept = getattr(streams, "kept", None)
        owner.self = <void*>held
        owner.record = _record_event
        owner.capturing = _any_captured
        self.core = held.core = new CDeviceHeap(held.api, device, owner)
        self.owner = held

    def __dealloc__(self):
        if isinstance(self.owner, HeapCore):
            Guard.__new__(Guard, self.owner, self.streams)

    def use_virtual_memory(self):
        """Take memory from the device's virtual memory, if it has any; once, before all else."""
        cdef HeapCore held = self.owner
        self.core.use(virtual_memory_of(held.api, held.device))

    def take(self, int64_t size, int64_t stream) -> HeapBlock | int:
        """Return the `HeapBlock` of a request, or the driver's error; `stream`: a handle, or `SHARED`."""
        cdef HeapBlock block = HeapBlock.__new__(HeapBlock)
        cdef int error
        with nogil:
            error = self.core.take(size, stream, block.place)
        if error != 0:
            return error
        block.heap = self
        return block

    def leave(self, int64_t stream):
        """Note that the program drops a stream: its handle may be another one's from now on."""
        with nogil:
            self.core.leave(stream)

    def trim(self):
        with nogil:
            self.core.trim()

    def make_room(self):
        with nogil:
            self.core.make_room()

    def begin_step(self):
        """Note that a step begins; on any thread, also one that must not ask the device."""
        self.core.begin_step()

    def reset_peak(self):
        self.core.reset_peak()

    def reserved(self) -> tuple[int, int]:
        """Return the bytes held of the device, arenas included, and the most so far."""
        return self.core.held(), self.core.peak()

    @property
    def free_ranges(self) -> int:
        return self.core.free_ranges()

    @property
    def limit(self) -> int:
        """The most bytes that blocks and arenas may take; 0: as many as there are."""
        return self.core.limit()

    @limit.setter
    def limit(self, int64_t limit):
        self.core.set_limit(limit)


cdef DeviceHeap heap_of(CDeviceHeap* core, owner):
    """The heap of a pool that is compiled as a whole."""
    cdef DeviceHeap heap = DeviceHeap.__new__(DeviceHeap, -1)
    heap.core, heap.owner = core, owner
    return heap


@cython.final
@cython.freelist(256)
@cython.no_gc_clear  # its heap must still be there when it dies in a cycle
cdef class HeapBlock:
    """Owns the memory of a live block: when it ends, its heap takes it back."""

    cdef DeviceHeap heap
    cdef HeapPlace place

    def __dealloc__(self):
        if self.heap is not None and not stow_is_finalizing():
            self.heap.core.give(self.place)

    @property
    def address(self) -> int:
        return self.place.address

    @property
    def size(self) -> int:
        return self.place.size


cdef class DeviceBackend(Backend):
    """What the pools of a device have in common: steps, and the account of what they hold (`memory`)."""

    cdef CDevicePool* arenas
    cdef readonly object memory  #: Any

    @property
    def grows_in_place(self) -> bool:
        return self.arenas.has_virtual_memory()

    @property
    def bottom_last(self) -> bool:
        return self.arenas.has_virtual_memory()

    def counters(self) -> dict[str, Any]:
        """As `Backend`; bytes reserved as the memory counts them, where it does, with what it keeps free."""
        counters = Backend.counters(self)
        if (reserved := self.memory.reserved()) is not None:
            held, counters["peak_reserved_bytes"] = reserved
            counters["reserved_bytes"] = held
            counters["kept_bytes"] = max(0, held - counters["arena_bytes"] - counters["upstream_bytes"])
        return counters

    def reset_peaks(self):
        Backend.reset_peaks(self)
        self.memory.reset_peak()

    def enter(self) -> tuple[int, int, list[int]] | None:
        self.settle()
        self.memory.begin_step()
        self.memory.make_room()
        return Backend.enter(self)

    def end(self, uint16_t step_slot, uint64_t step) -> list[tuple[int, StepOutcome]]:
        outcomes = Backend.end(self, step_slot, step)
        self.arenas.drop_dead_arenas()
        return outcomes
