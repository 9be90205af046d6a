# distutils: language = c++
"""Binding of the replay core (allocator/core), of its NumPy handler and of its CuPy allocator.

Thin: the decisions are in C++ and in Python. No framework is imported here: CuPy's classes are handed in.
"""

import sys

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid

from libc.stdint cimport int64_t, intptr_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.vector cimport vector

import numpy as np

cimport numpy as cnp

from ..errors import PoolError
from ..profiler.steps import EVENT_DTYPE

cnp.import_array()


cdef extern from "plan.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass CPlan "stowplan::allocator::Plan":
        vector[int64_t] offset
        vector[int64_t] requested
        vector[int64_t] capacity
        vector[uint32_t] due_begin
        vector[int64_t] stream
        vector[uint32_t] due
        int64_t arena_bytes
        uint64_t tag
        void hash_prefixes() except +
        void merge(vector[int64_t], const vector[uint8_t]&) except +

    ctypedef shared_ptr[const CPlan] PlanPtr


cdef extern from "realign.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass AlignedPlan:
        vector[int64_t] least
        vector[int64_t] most
        vector[int64_t] kind

    cdef cppclass AlignedStep:
        vector[int64_t] size
        vector[int64_t] kind
        vector[int64_t] vote

    cdef cppclass Band:
        vector[int64_t] first
        vector[int64_t] last

    vector[int64_t] c_realign "stowplan::allocator::realign" (
        const AlignedPlan&, const AlignedStep&, const Band&) except +


cdef extern from "replay.hpp" namespace "stowplan::allocator" nogil:
    const size_t kReasons

    cdef cppclass Event:
        pass

    cdef enum class Reason(uint8_t):
        no_plan

    cdef cppclass Grant:
        uintptr_t address
        uint32_t id
        uint8_t reason

    cdef cppclass Arena:
        uintptr_t base
        int64_t size
        uint32_t live

    cdef cppclass Counters:
        uint64_t requests[9]
        uint64_t smaller
        uint64_t missing
        uint64_t guests
        int64_t live_bytes
        int64_t peak_live_bytes
        int64_t upstream_bytes
        int64_t arena_bytes
        int64_t peak_reserved_bytes

    cdef cppclass StepOutcome:
        vector[Event] log
        cbool complete
        cbool clean
        uint64_t tag

    cdef cppclass Range:
        uintptr_t begin
        uintptr_t end

    cdef cppclass CReplay "stowplan::allocator::Replay":
        CReplay(int64_t) except +
        Grant request(int64_t, int64_t, uintptr_t) except +
        void adopt(uint32_t, uintptr_t)
        void cancel(uint32_t)
        cbool release(uint32_t)
        cbool begin_step(uintptr_t, PlanPtr, vector[PlanPtr]) except +
        void set_interrupted(uintptr_t, cbool)
        StepOutcome end_step() except +
        cbool in_step()
        void set_timestamps(cbool)
        void reserve(uintptr_t, int64_t) except +
        const Arena& arena()
        vector[uintptr_t] take_dead_arenas() except +
        const Counters& counters()
        void reset_peaks()
        vector[uint32_t] live_blocks() except +
        Range range_of(uint32_t)
        void assert_invariants() except +


cdef extern from "host_pool.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass HostMemory "stowplan::allocator::HostMemory":
        pass

    cbool host_begin_step(HostMemory&, const PlanPtr&, const vector[PlanPtr]&) except +
    StepOutcome host_end_step(HostMemory&) except +
    void host_set_timestamps(HostMemory&, cbool)
    Counters host_counters(HostMemory&)
    void host_reset_peaks(HostMemory&)
    void host_set_interrupted(HostMemory&, cbool)
    cbool host_reserve(HostMemory&, int64_t) except +


cdef extern from "device_pool.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass CDevicePool "stowplan::allocator::DevicePool":
        Grant request(int64_t, int64_t) except +
        void adopt(uint32_t, uintptr_t)
        void release(uint32_t)
        cbool begin_step(PlanPtr, vector[PlanPtr]) except +
        StepOutcome end_step() except +
        void set_interrupted(cbool)
        void set_timestamps(cbool)
        int64_t arena_size()
        void reserve(uintptr_t, int64_t) except +
        cbool retire_idle_arena() except +
        vector[uintptr_t] take_dead_arenas() except +
        Counters counters()


cdef extern from "profiler/numpy_capsule.hpp" namespace "stowplan::profiler":
    object make_handler_capsule "stowplan::profiler::make_handler_capsule<stowplan::allocator::HostReplay>" (
        const char* name, object upstream, size_t small)
    HostMemory* memory_of "stowplan::profiler::memory_of<stowplan::allocator::HostReplay>" (object capsule)


REASONS = (
    "replayed", "outside", "thread", "interrupted", "no_plan", "escaped", "stream", "late", "mismatch"
)
assert len(REASONS) == kReasons


cdef void _copy_column(vector[int64_t]& to, const int64_t[::1] column):
    cdef Py_ssize_t i
    to.resize(column.shape[0])
    for i in range(column.shape[0]):
        to[i] = column[i]


cdef void _copy_numbers(vector[uint32_t]& to, const int64_t[::1] column):
    cdef Py_ssize_t i
    to.resize(column.shape[0])
    for i in range(column.shape[0]):
        to[i] = <uint32_t>column[i]


cdef class CorePlan:
    """A plan in the core's form; see allocator/core/plan.hpp. All columns are int64; `tag` is not 0."""

    cdef shared_ptr[CPlan] plan

    def __init__(self, offset, requested, capacity, stream, due_begin, due, int64_t arena_bytes, uint64_t tag):
        n = len(offset)
        if not (len(requested) == len(capacity) == len(stream) == n and len(due_begin) == n + 2 and due_begin[n + 1] == len(due)):
            raise ValueError("the columns of a plan disagree in length")
        self.plan = make_shared[CPlan]()
        cdef CPlan* plan = self.plan.get()
        _copy_column(plan.offset, offset)
        _copy_column(plan.requested, requested)
        _copy_column(plan.capacity, capacity)
        _copy_column(plan.stream, stream)
        _copy_numbers(plan.due_begin, due_begin)
        _copy_numbers(plan.due, due)
        plan.arena_bytes = arena_bytes
        plan.tag = tag
        plan.hash_prefixes()

    def merge(self, least, landmark):
        """Make it a merged plan: the smallest sizes, int64 (n,), and which blocks are landmarks, bool (n,)."""
        if not len(least) == len(landmark) == self.plan.get().requested.size():
            raise ValueError("the columns of a plan disagree in length")
        cdef vector[int64_t] smallest
        cdef vector[uint8_t] marks = landmark
        _copy_column(smallest, least)
        self.plan.get().merge(smallest, marks)


def realign(least, most, kind, size, step_kind, vote, first, last):
    """Return each request's number in a plan, int64 (m,), -1 for none; see allocator/core/realign.hpp.

    All columns are int64: `least`, `most`, `kind` (n,) of the plan, `size`, `step_kind`, `vote` (m,) of the step, and the
    band `first`, `last` (n + 1,).
    """
    n, m = len(kind), len(size)
    if not (len(least) == len(most) == n and len(step_kind) == len(vote) == m and len(first) == len(last) == n + 1):
        raise ValueError("the columns disagree in length")
    if first[0] != 0 or last[n] != m or (np.diff(first) < 0).any() or (np.diff(last) < 0).any() or (first[1:] > last[:n]).any():
        raise ValueError("this is no band from one corner to the other")
    cdef AlignedPlan plan
    cdef AlignedStep step
    cdef Band band
    cdef vector[int64_t] number
    _copy_column(plan.least, least)
    _copy_column(plan.most, most)
    _copy_column(plan.kind, kind)
    _copy_column(step.size, size)
    _copy_column(step.kind, step_kind)
    _copy_column(step.vote, vote)
    _copy_column(band.first, first)
    _copy_column(band.last, last)
    with nogil:
        number = c_realign(plan, step, band)
    return np.array(number, dtype=np.int64)


cdef class PlanSet:
    """Plans in the core's form, most likely first."""

    cdef vector[PlanPtr] plans

    def __init__(self, plans=()):
        for plan in plans:
            self.plans.push_back(<PlanPtr>(<CorePlan?>plan).plan)


cdef PlanPtr _pointer(CorePlan plan):
    cdef PlanPtr pointer
    if plan is not None:
        pointer = <PlanPtr>plan.plan
    return pointer


cdef object _log(vector[Event]& events):
    """Copy a step's events into a structured array."""
    log = np.empty(events.size(), dtype=EVENT_DTYPE)
    if events.size():
        memcpy(cnp.PyArray_DATA(log), events.data(), events.size() * EVENT_DTYPE.itemsize)
    return log


cdef dict _counters(const Counters& counters):
    return {
        "requests": {name: counters.requests[i] for i, name in enumerate(REASONS)},
        "smaller": counters.smaller,
        "missing": counters.missing,
        "guests": counters.guests,
        "live_bytes": counters.live_bytes,
        "peak_live_bytes": counters.peak_live_bytes,
        "upstream_bytes": counters.upstream_bytes,
        "arena_bytes": counters.arena_bytes,
        "peak_reserved_bytes": counters.peak_reserved_bytes,
    }


cdef class Replay:
    """The bare replay core over addresses that nobody backs with memory: for tests and simulations."""

    cdef CReplay* core

    def __cinit__(self, int64_t unit=1):
        self.core = new CReplay(unit)

    def __dealloc__(self):
        del self.core

    def request(self, int64_t size, int64_t stream=0, uintptr_t thread=1):
        """Return (address or 0, block id)."""
        cdef Grant grant = self.core.request(size, stream, thread)
        return grant.address, grant.id

    def adopt(self, uint32_t block, uintptr_t address):
        self.core.adopt(block, address)

    def cancel(self, uint32_t block):
        self.core.cancel(block)

    def release(self, uint32_t block):
        """Free a block; True where it is upstream's."""
        return self.core.release(block)

    def begin_step(self, CorePlan plan=None, PlanSet others=PlanSet(), uintptr_t thread=1):
        return self.core.begin_step(thread, _pointer(plan), others.plans)

    def end_step(self):
        """Return (log, complete, clean, tag)."""
        cdef StepOutcome outcome = self.core.end_step()
        return _log(outcome.log), outcome.complete, outcome.clean, outcome.tag

    def set_interrupted(self, cbool interrupted, uintptr_t thread=1):
        self.core.set_interrupted(thread, interrupted)

    def reserve(self, uintptr_t base, int64_t size):
        self.core.reserve(base, size)

    def take_dead_arenas(self):
        return list(self.core.take_dead_arenas())

    def counters(self):
        return _counters(self.core.counters())

    def ranges(self):
        """Return {block id: (begin, end)} of the live blocks."""
        return {i: (self.core.range_of(i).begin, self.core.range_of(i).end) for i in self.core.live_blocks()}

    def assert_invariants(self):
        self.core.assert_invariants()


cdef class HostPool:
    """The replay core behind a NumPy memory handler.

    The capsule owns the core: arrays hold the capsule, so either may be dropped first.
    """

    cdef readonly object handler
    cdef HostMemory* memory

    def __init__(self, name, upstream, size_t small):
        self.handler = make_handler_capsule(name.encode(), upstream, small)
        self.memory = memory_of(self.handler)

    def begin_step(self, CorePlan plan, PlanSet others):
        """Start a step in this thread that is expected to follow `plan` (or None); False where one is running."""
        return host_begin_step(self.memory[0], _pointer(plan), others.plans)

    def end_step(self):
        """Return (log, complete, clean, tag)."""
        cdef StepOutcome outcome = host_end_step(self.memory[0])
        return _log(outcome.log), outcome.complete, outcome.clean, outcome.tag

    def set_interrupted(self, cbool interrupted):
        """Send this thread's requests upstream, if the running step is its own."""
        host_set_interrupted(self.memory[0], interrupted)

    def reserve(self, int64_t size):
        """Make the arena at least this large; False where upstream has no memory for it."""
        return host_reserve(self.memory[0], size)

    def set_timestamps(self, cbool on):
        host_set_timestamps(self.memory[0], on)

    def counters(self):
        return _counters(host_counters(self.memory[0]))

    def reset_peaks(self):
        host_reset_peaks(self.memory[0])


# ------------------------------------------------------------------------------------------------------------- device

cdef const char* STREAM_SIGNATURE = "intptr_t (void)"
cdef const char* DEVICE_SIGNATURE = "int (int __pyx_skip_dispatch)"

ctypedef intptr_t (*stream_function)() except? -1
ctypedef int (*device_function)(int) except? -1


cdef extern from *:
    ctypedef struct PyThreadState:
        pass
    PyThreadState* PyThreadState_Get()
    uint64_t PyThreadState_GetID(PyThreadState*)


@cython.final
@cython.freelist(1024)
@cython.no_gc_clear  # its pool must still be there when it dies in a cycle
cdef class Lease:
    """The owner of a block's memory as CuPy sees it: the block is free when its lease dies."""

    cdef DevicePool pool
    cdef uint32_t block
    cdef readonly object memory  # upstream's MemoryPointer, None for a block in the arena
    cdef public object event  # what memory hooks are to be told of its end; None for nothing

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.core.release(self.block)
            if self.event is not None:
                self.pool.tell_freed(self.event)


@cython.final
cdef class DevicePool:
    """The replay core of one device as a CuPy allocator.

    Parameters
    ----------
    device
        Device number.
    upstream, sampling
        Allocators, ``f(size) -> MemoryPointer``: what serves unplanned requests, and those of steps without a plan.
    memory_pointer, unowned_memory
        CuPy's classes.
    current_stream
        ``f() -> int``, or a capsule with CuPy's C function of the same name, or None: everything is on stream 0.
    hooks_of_thread
        ``f() -> dict``: the calling thread's memory hooks, for one thread always the same object.
    hooked
        ``f(pool, size, hooks)``: how to serve a request while memory hooks are watching.
    told
        ``f(event, hooks)``: how to tell memory hooks of a block's end.
    synchronize
        ``f()``: wait for the device, before an arena comes from upstream or goes back, so that what streams still do
        with its memory is over; or None.
    """

    cdef CDevicePool core
    cdef readonly int device
    cdef readonly object upstream
    cdef object device_number, sampling, memory_pointer, unowned_memory, current_stream
    cdef object hooks_of_thread, hooked, told, synchronize
    cdef stream_function stream_pointer
    cdef object hooks  # of the thread `hooks_thread`
    cdef uint64_t hooks_thread  # Python's number for a thread, which never comes again; 0 for none
    cdef dict arenas  # address -> upstream's MemoryPointer

    def __cinit__(
        self,
        int device,
        upstream,
        sampling,
        memory_pointer,
        unowned_memory,
        current_stream,
        hooks_of_thread,
        hooked,
        told,
        synchronize,
    ):
        self.device = self.device_number = device
        self.upstream, self.sampling = upstream, sampling
        self.memory_pointer, self.unowned_memory = memory_pointer, unowned_memory
        self.hooks_of_thread, self.hooked, self.told = hooks_of_thread, hooked, told
        self.current_stream, self.synchronize = current_stream, synchronize
        if PyCapsule_IsValid(current_stream, STREAM_SIGNATURE):
            self.stream_pointer = <stream_function>PyCapsule_GetPointer(current_stream, STREAM_SIGNATURE)
        self.arenas = {}

    def malloc(self, size):
        """Serve a request of `size` bytes: a `cupy.cuda.MemoryPointer`. Errors are upstream's own."""
        hooks = self.watching()
        if len(hooks):
            return self.hooked(self, size, hooks)
        return self.serve(size, Lease.__new__(Lease))

    def malloc_watched(self, size):
        """As `malloc`, without looking for memory hooks: return (MemoryPointer, lease)."""
        lease = Lease.__new__(Lease)
        return self.serve(size, lease), lease

    cdef watching(self):
        """The calling thread's memory hooks. CuPy looks them up by name in a thread-local: this asks once a thread."""
        cdef uint64_t thread = PyThreadState_GetID(PyThreadState_Get())
        if thread == self.hooks_thread:
            return self.hooks
        hooks = self.hooks_of_thread()
        former = self.hooks  # must not die between the two lines below: its death may let another thread run
        self.hooks = hooks
        self.hooks_thread = thread
        return hooks

    cdef tell_freed(self, event):
        """Tell the hooks of the thread that frees, as CuPy does; not while the interpreter goes down."""
        if not sys.is_finalizing():
            hooks = self.watching()
            if hooks:
                self.told(event, hooks)

    cdef serve(self, size, Lease lease):
        cdef int64_t stream = 0
        cdef Grant grant
        if self.stream_pointer != NULL:
            stream = self.stream_pointer()
        elif self.current_stream is not None:
            stream = self.current_stream()
        grant = self.core.request(size, stream)
        lease.block = grant.id
        lease.pool = self
        if grant.address == 0:
            self.ask_upstream(lease, size, grant.reason)
            grant.address = lease.memory.ptr
            self.core.adopt(grant.id, grant.address)
        return self.memory_pointer(self.unowned_memory(grant.address, size, lease, self.device_number), 0)

    cdef ask_upstream(self, Lease lease, size, uint8_t reason):
        allocator = self.sampling if reason == <uint8_t>Reason.no_plan else self.upstream
        try:
            lease.memory = self.ask(allocator, size)
        except Exception:
            if not self.give_back():
                raise
            lease.memory = self.ask(allocator, size)

    cdef ask(self, allocator, size):
        memory = allocator(size)
        if not isinstance(memory, self.memory_pointer):
            raise PoolError(f"upstream returned {memory!r}; expected a cupy.cuda.MemoryPointer")
        return memory

    def reserve(self, int64_t size):
        """Make the arena at least this large; False where upstream has no memory for it."""
        if size <= self.core.arena_size():
            return True
        try:
            memory = self.ask(self.upstream, size)
        except Exception:
            return False
        if self.synchronize is not None:
            self.synchronize()
        self.arenas[memory.ptr] = memory
        self.core.reserve(memory.ptr, size)
        self.drop_dead_arenas()
        return True

    def drop_dead_arenas(self):
        """Give back retired arenas in which nothing lives; return how many."""
        dead = list(self.core.take_dead_arenas())
        if dead and self.synchronize is not None:
            self.synchronize()
        for base in dead:
            del self.arenas[base]
        return len(dead)

    def begin_step(self, CorePlan plan, PlanSet others):
        """Start a step in this thread that is expected to follow `plan` (or None); False where one is running."""
        return self.core.begin_step(_pointer(plan), others.plans)

    def end_step(self):
        """Return (log, complete, clean, tag)."""
        cdef StepOutcome outcome = self.core.end_step()
        self.drop_dead_arenas()
        return _log(outcome.log), outcome.complete, outcome.clean, outcome.tag

    def set_interrupted(self, cbool interrupted):
        """Send this thread's requests upstream, if the running step is its own."""
        self.core.set_interrupted(interrupted)

    def give_back(self):
        """Give back every arena in which nothing lives, the current one included; return how many."""
        self.core.retire_idle_arena()
        return self.drop_dead_arenas()

    def set_timestamps(self, cbool on):
        """Note the wall clock of events, or not."""
        self.core.set_timestamps(on)

    def counters(self):
        """Return the core's counters."""
        return _counters(self.core.counters())


@cython.final
cdef class DeviceRouter:
    """The pools of several devices as one CuPy allocator: a request goes to the pool of its current device.

    Parameters
    ----------
    current_device
        ``f() -> int``, or a capsule with CuPy's C function ``get_device_id``.
    pool_of
        ``f(device) -> DevicePool``: asked once for each device.
    """

    cdef object current_device, pool_of
    cdef device_function device_number
    cdef list pools  # by device number, None where not asked for yet

    def __cinit__(self, current_device, pool_of):
        self.current_device, self.pool_of = current_device, pool_of
        if PyCapsule_IsValid(current_device, DEVICE_SIGNATURE):
            self.device_number = <device_function>PyCapsule_GetPointer(current_device, DEVICE_SIGNATURE)
        self.pools = []

    def malloc(self, size):
        """Serve a request of `size` bytes: a `cupy.cuda.MemoryPointer`. Errors are upstream's own."""
        cdef Py_ssize_t device
        if self.device_number != NULL:
            device = self.device_number(0)
        else:
            device = self.current_device()
        if device >= len(self.pools):
            self.pools.extend([None] * (device + 1 - len(self.pools)))
        if self.pools[device] is None:
            self.pools[device] = self.pool_of(device)
        return (<DevicePool>self.pools[device]).malloc(size)
