# Segments of a device for CuPy: core/device/segments.hpp. Included by _core.pyx.

cdef extern from "cuda_api.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass CudaApi:
        int (*exchange_capture_mode)(int*)
    string find_driver(CudaApi&)
    enum: kCudaRelaxed


cdef extern from "virtual_arena.hpp" namespace "stowplan::allocator" nogil:
    VirtualMemory virtual_memory_of "stowplan::allocator::VirtualMemory::of"(const CudaApi&, int) except +


cdef extern from "segments.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass SegmentPlace "stowplan::allocator::Segments::Place":
        uintptr_t address
        int64_t size

    cdef cppclass CSegments "stowplan::allocator::Segments":
        CSegments(const CudaApi&, int, cbool (*)(void*) noexcept nogil, void*) except +
        int take(int64_t, int64_t, SegmentPlace&) except +
        void give(const SegmentPlace&)
        cbool keep_limit(int64_t) except +
        void trim() except +
        void make_room() except +
        int64_t room(cbool, int64_t)
        void note_arenas(int64_t) except +
        void note_beside(int64_t, int64_t)
        void begin_step()
        int64_t held()
        int64_t peak()
        void reset_peak()
        int64_t limit()
        void set_limit(int64_t)
        void set_page(int64_t)
        size_t free_segments()
        int64_t unused()
        cbool is_worn()
        uint64_t patience


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


cdef cbool _may_free(void* owner) noexcept with gil:
    streams = (<Segments>owner).streams
    try:
        return streams is None or not streams.capturing()
    except BaseException as error:
        forget(error)
        return False


@cython.no_gc_clear  # blocks that die in a cycle are given back to it
cdef class Segments:
    """What a pool takes of a device beside its arenas, and the account of all that it holds: core/device/segments.hpp.

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

    cdef CSegments* core
    cdef CudaApi api
    cdef object streams
    cdef object owner  # of the core; None: this

    def __cinit__(self, int device, streams: Any = None, uintptr_t table=0):
        cdef string missing
        if device < 0:  # see segments_of()
            return
        if table != 0:
            self.api = (<CudaApi*>table)[0]
        else:
            missing = find_driver(self.api)
        if not missing.empty():
            raise PoolError(f"no driver with {missing.decode()}")
        self.streams = streams
        self.core = new CSegments(self.api, device, _may_free, <void*>self)

    def __dealloc__(self):
        if self.owner is None and self.core != NULL and not stow_is_finalizing():
            del self.core

    def take(self, int64_t size, int64_t stream) -> Segment | int:
        """Return the `Segment` of a block, or the driver's error."""
        cdef Segment segment = Segment.__new__(Segment)
        cdef int error = self.core.take(size, stream, segment.place)
        if error != 0:
            return error
        segment.segments = self
        return segment

    def keep_limit(self, int64_t asked) -> bool:
        return self.core.keep_limit(asked)

    def trim(self):
        self.core.trim()

    def make_room(self):
        self.core.make_room()

    def room(self, cbool within_limit, int64_t live_peak) -> int:
        """Return the bytes that all arenas may take now, so that no more is held than has been live at a time.

        `within_limit`: so many as the limit allows. `live_peak`: the most bytes that the program has had live at a
        time, wherever they lie.
        """
        return self.core.room(within_limit, live_peak)

    def note_arenas(self, int64_t size):
        self.core.note_arenas(size)

    def note_beside(self, int64_t held, int64_t used):
        self.core.note_beside(held, used)

    def begin_step(self):
        """Note that a step begins; on any thread, also one that must not ask the device."""
        self.core.begin_step()

    def reset_peak(self):
        self.core.reset_peak()

    def set_page(self, int64_t page):
        self.core.set_page(page)

    def reserved(self) -> tuple[int, int]:
        """Return the bytes held of the device, arenas included, and the most so far."""
        return self.core.held(), self.core.peak()

    @property
    def unused(self) -> int:
        return self.core.unused()

    @property
    def free_segments(self) -> int:
        return self.core.free_segments()

    @property
    def is_worn(self) -> bool:
        """Whether the driver was asked for `patience` segments."""
        return self.core.is_worn()

    @property
    def patience(self) -> int:
        return self.core.patience

    @patience.setter
    def patience(self, uint64_t patience):
        self.core.patience = patience

    @property
    def limit(self) -> int:
        """The most bytes that blocks and arenas may take; 0: as many as there are."""
        return self.core.limit()

    @limit.setter
    def limit(self, int64_t limit):
        self.core.set_limit(limit)


cdef Segments segments_of(CSegments* core, owner):
    """The segments of a pool that is compiled as a whole."""
    cdef Segments segments = Segments.__new__(Segments, -1)
    segments.core, segments.owner = core, owner
    return segments


@cython.final
@cython.freelist(256)
@cython.no_gc_clear  # its segments must still be there when it dies in a cycle
cdef class Segment:
    """Owns the memory of a live block: when it ends, its pool takes it back."""

    cdef Segments segments
    cdef SegmentPlace place

    def __dealloc__(self):
        if self.segments is not None and not stow_is_finalizing():
            self.segments.core.give(self.place)

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
