# distutils: language = c++
"""Binding of the replay core (allocator/core), of its NumPy handler and of its CuPy allocator.

Thin: the decisions are in C++ and in Python. No framework is imported here: CuPy's classes are handed in.
"""

import sys

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid

from libc.stdint cimport int64_t, intptr_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
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
        void derive() except +
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
        cbool waits

    cdef cppclass Counters:
        uint64_t requests[9]
        uint64_t smaller
        uint64_t missing
        uint64_t guests
        uint64_t steps
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
        void begin_step(PlanPtr, vector[PlanPtr]) except +
        StepOutcome end_step() except +
        void reserve(uintptr_t, int64_t) except +


cdef extern from "diagnosis.hpp" namespace "stowplan::allocator" nogil:
    cdef enum class Place(uint8_t):
        upstream
        planned
        late
        held

    cdef cppclass LiveBlock:
        int64_t size
        int64_t stream
        int64_t age
        uint32_t request
        uint16_t lane
        uint32_t slot
        uint64_t tag
        Place place

    cdef cppclass Largest:
        size_t size()
        const LiveBlock& at "operator[]" (size_t)

    cdef cppclass Situation:
        uint16_t berth
        cbool in_step
        uint64_t step
        uint32_t requests
        uint64_t planned_requests
        int64_t live_bytes
        int64_t upstream_bytes
        int64_t arena_bytes
        Largest largest

    cdef cppclass Failure:
        uint64_t number
        LiveBlock asked
        Situation found


cdef extern from "lanes.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass optional_berth "std::optional<stowplan::allocator::BerthNumber>":
        cbool has_value()
        uint16_t value()

    cdef cppclass CLanes "stowplan::allocator::Lanes":
        CLanes(int64_t) except +
        Grant request(int64_t, int64_t, uintptr_t) except +
        void adopt(uint32_t, uintptr_t)
        void cancel(uint32_t)
        cbool release(uint32_t)
        void hold(uint32_t, cbool) except +
        cbool let_go(uint32_t) except +
        const vector[uint32_t]& awaited(uint32_t)
        void drop_awaited(uint32_t)
        optional_berth enter(uintptr_t) except +
        void leave(uint16_t)
        const vector[uint16_t]& lanes_of(uint16_t)
        cbool takes_over(uint16_t) except +
        void welcome(uint16_t) except +
        void set_interrupted(uintptr_t, cbool)
        CReplay& lane(uint16_t)
        const Counters& counters()
        Situation situation(uintptr_t)
        vector[uint32_t] live_blocks() except +
        Range range_of(uint32_t)
        void assert_invariants() except +


cdef extern from "auto_lanes.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass AutoLanes:
        pass

    cdef cppclass LaneOutcome:
        uint16_t lane
        StepOutcome outcome

    cdef cppclass Signal:
        void close() except +
        cbool wait() except +


cdef extern from "locked_lanes.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass LockedLanes:
        LockedLanes(SpinLock&, AutoLanes&)
        int enter() except +
        int berth()
        void leave(uint16_t)
        vector[uint16_t] lanes_of(uint16_t) except +
        uint16_t add_lane(uint16_t) except +
        cbool takes_over(uint16_t) except +
        void welcome(uint16_t) except +
        void set_interrupted(cbool) except +
        void find_steps() except +
        void expect(uint16_t, PlanPtr, vector[PlanPtr], cbool) except +
        vector[LaneOutcome] take_outcomes() except +
        Signal& signal()
        void begin_step(uint16_t, PlanPtr, vector[PlanPtr], cbool) except +
        StepOutcome end_step(uint16_t) except +
        void set_timestamps(uint16_t, cbool)
        int64_t arena_size(uint16_t)
        void reserve(uint16_t, uintptr_t, int64_t) except +
        void retire_idle_arenas() except +
        vector[uintptr_t] take_dead_arenas() except +
        Counters counters()
        Situation situation()
        void note_failure(uint32_t)
        Failure failure()
        void reset_peaks()

    cdef cppclass SpinLock "stowplan::profiler::SpinLock":
        pass


cdef extern from "host_pool.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass HostMemory "stowplan::allocator::HostMemory":
        SpinLock& lock()
        AutoLanes& service()

    cbool host_reserve(HostMemory&, uint16_t, int64_t) except +


cdef extern from "device_pool.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass CDevicePool "stowplan::allocator::DevicePool":
        Grant request(int64_t, int64_t) except +
        void adopt(uint32_t, uintptr_t)
        void release(uint32_t)
        void hold(uint32_t, cbool) except +
        void let_go(uint32_t)
        vector[uint32_t] awaited(uint32_t) except +
        void drop_awaited(uint32_t)
        int64_t stream_of(uint32_t)
        LockedLanes* lanes()


cdef extern from "profiler/numpy_capsule.hpp" namespace "stowplan::profiler":
    object make_handler_capsule "stowplan::profiler::make_handler_capsule<stowplan::allocator::HostLanes>" (
        const char* name, object upstream, size_t small)
    HostMemory* memory_of "stowplan::profiler::memory_of<stowplan::allocator::HostLanes>" (object capsule)


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
        plan.derive()

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


cdef tuple _outcome(StepOutcome& outcome):
    """Return (log, complete, clean, tag)."""
    return _log(outcome.log), outcome.complete, outcome.clean, outcome.tag


cdef dict _counters(const Counters& counters):
    return {
        "requests": {name: counters.requests[i] for i, name in enumerate(REASONS)},
        "smaller": counters.smaller,
        "missing": counters.missing,
        "guests": counters.guests,
        "steps": counters.steps,
        "live_bytes": counters.live_bytes,
        "peak_live_bytes": counters.peak_live_bytes,
        "upstream_bytes": counters.upstream_bytes,
        "arena_bytes": counters.arena_bytes,
        "peak_reserved_bytes": counters.peak_reserved_bytes,
    }


_PLACES = ("upstream", "planned", "late", "held")


cdef dict _live_block(const LiveBlock& block):
    return {
        "size": block.size,
        "stream": block.stream,
        "age": block.age,
        "request": block.request,
        "lane": block.lane,
        "slot": block.slot if block.place == Place.planned else None,
        "tag": block.tag,
        "place": _PLACES[<uint8_t>block.place],
    }


cdef dict _situation(const Situation& now):
    return {
        "berth": now.berth,
        "in_step": now.in_step,
        "step": now.step,
        "requests": now.requests,
        "planned_requests": now.planned_requests,
        "live_bytes": now.live_bytes,
        "upstream_bytes": now.upstream_bytes,
        "arena_bytes": now.arena_bytes,
        "largest": [_live_block(now.largest.at(i)) for i in range(now.largest.size())],
    }


cdef class Replay:
    """The bare core, lanes and all, over addresses that nobody backs with memory: for tests and simulations."""

    cdef CLanes* core

    def __cinit__(self, int64_t unit=1):
        self.core = new CLanes(unit)

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

    def hold(self, uint32_t block, cbool may_wait=True):
        """Free a block that other streams may still use."""
        self.core.hold(block, may_wait)

    def let_go(self, uint32_t block):
        """Say that they do not; True where it is upstream's."""
        return self.core.let_go(block)

    def take_awaited(self, uint32_t granted):
        """Return the held blocks whose place this one took, and those before it that nobody asked about."""
        awaited = list(self.core.awaited(granted))
        self.core.drop_awaited(granted)
        return awaited

    def enter(self, uintptr_t thread=1):
        """Return the number of a berth, or None where the thread has one."""
        cdef optional_berth berth = self.core.enter(thread)
        return berth.value() if berth.has_value() else None

    def leave(self, uint16_t berth):
        self.core.leave(berth)

    def lanes_of(self, uint16_t berth):
        return list(self.core.lanes_of(berth))

    def takes_over(self, uint16_t berth):
        return self.core.takes_over(berth)

    def welcome(self, uint16_t berth):
        self.core.welcome(berth)

    def begin_lane(self, uint16_t lane, CorePlan plan=None, PlanSet others=PlanSet()):
        """Begin one lane's part of a step."""
        self.core.lane(lane).begin_step(_pointer(plan), others.plans)

    def end_lane(self, uint16_t lane):
        """Return (log, complete, clean, tag)."""
        cdef StepOutcome outcome = self.core.lane(lane).end_step()
        return _outcome(outcome)

    def begin_step(self, CorePlan plan=None, PlanSet others=PlanSet(), uintptr_t thread=1):
        """Begin a step of which only the first lane has a plan; False where the thread runs one."""
        berth = self.enter(thread)
        if berth is None:
            return False
        for i, lane in enumerate(self.lanes_of(berth)):
            self.begin_lane(lane, *((plan, others) if i == 0 else ()))
        return True

    def end_step(self, uint16_t berth=0):
        """Return the first lane's (log, complete, clean, tag)."""
        outcomes = [self.end_lane(lane) for lane in self.lanes_of(berth)]
        self.leave(berth)
        return outcomes[0]

    def set_interrupted(self, cbool interrupted, uintptr_t thread=1):
        self.core.set_interrupted(thread, interrupted)

    def reserve(self, uintptr_t base, int64_t size, uint16_t lane=0):
        self.core.lane(lane).reserve(base, size)

    def counters(self):
        return _counters(self.core.counters())

    def situation(self, uintptr_t thread=1):
        return _situation(self.core.situation(thread))

    def ranges(self):
        """Return {block id: (begin, end)} of the live blocks, and of the held ones."""
        return {i: (self.core.range_of(i).begin, self.core.range_of(i).end) for i in self.core.live_blocks()}

    def assert_invariants(self):
        self.core.assert_invariants()


cdef class Backend:
    """What steps need of a pool's core: berths for threads, and in each a lane for every stream (core/lanes.hpp)."""

    cdef LockedLanes* lanes  # the subclass's own

    def enter(self):
        """Take a berth for a step of this thread; None where it runs one."""
        cdef int berth = self.lanes.enter()
        if berth < 0:
            return None
        if self.lanes.takes_over(berth):
            self.make_idle()
        self.lanes.welcome(berth)
        return berth

    cdef make_idle(self):
        """Return when nobody uses the memory of blocks that are free."""

    def settle(self):
        """Let go of blocks whose end was waiting for other streams, where these are done."""

    def berth(self):
        """Return the berth of the step that this thread runs, or None."""
        cdef int berth = self.lanes.berth()
        return None if berth < 0 else berth

    def leave(self, uint16_t berth):
        """Give a berth up. No step is running in its lanes."""
        self.lanes.leave(berth)

    def lanes_of(self, uint16_t berth):
        """Return the numbers of a berth's lanes; there may be more of them with every step."""
        return list(self.lanes.lanes_of(berth))

    def add_lane(self, uint16_t berth):
        """Make a lane for a stream that is not known yet; return its number."""
        return self.lanes.add_lane(berth)

    def begin_step(self, uint16_t lane, CorePlan plan, PlanSet others):
        """Start a lane's part of a step that is expected to follow `plan` (or None)."""
        self.lanes.begin_step(lane, _pointer(plan), others.plans, True)

    def end_step(self, uint16_t lane):
        """Return (log, complete, clean, tag)."""
        cdef StepOutcome outcome = self.lanes.end_step(lane)
        return _outcome(outcome)

    def set_interrupted(self, cbool interrupted):
        """Send this thread's requests upstream, if it runs a step."""
        self.lanes.set_interrupted(interrupted)

    def find_steps(self):
        """Find steps without being told, from now on; the first `enter` ends it."""
        self.lanes.find_steps()

    def expect(self, uint16_t lane, CorePlan plan, PlanSet others, cbool wanted):
        """Say what a lane's steps that are found may follow, and whether those that do so are to be heard of."""
        self.lanes.expect(lane, _pointer(plan), others.plans, wanted)

    def take_outcomes(self):
        """Return [(lane, (log, complete, clean, tag))] of steps found that have ended."""
        cdef vector[LaneOutcome] outcomes = self.lanes.take_outcomes()
        cdef size_t i
        return [(outcomes[i].lane, _outcome(outcomes[i].outcome)) for i in range(outcomes.size())]

    def wait_for_outcomes(self):
        """Wait for the next ones; False after close()."""
        cdef cbool open_
        with nogil:
            open_ = self.lanes.signal().wait()
        return open_

    def close(self):
        """End all waits, now and to come."""
        self.lanes.signal().close()

    def set_timestamps(self, uint16_t lane, cbool on):
        """Note the wall clock of a lane's events, or not."""
        self.lanes.set_timestamps(lane, on)

    def arena_bytes(self, uint16_t lane):
        """Return the size of a lane's arena."""
        return self.lanes.arena_size(lane)

    def counters(self):
        """Return the counters of all lanes."""
        return _counters(self.lanes.counters())

    def situation(self):
        """Return what fills the memory, as this thread sees it; see core/diagnosis.hpp."""
        return _situation(self.lanes.situation())

    def failure(self):
        """Return the last request that upstream had no memory for, and what it found; or None."""
        cdef Failure failure = self.lanes.failure()
        if failure.number == 0:
            return None
        return {
            "number": failure.number,
            "asked": _live_block(failure.asked),
            "found": _situation(failure.found),
        }

    def reset_peaks(self):
        """Forget peaks: what is held now is the most."""
        self.lanes.reset_peaks()


cdef class HostPool(Backend):
    """The lanes behind a NumPy memory handler.

    The capsule owns the core: arrays hold the capsule, so either may be dropped first.
    """

    cdef readonly object handler
    cdef HostMemory* memory

    def __init__(self, name, upstream, size_t small):
        self.handler = make_handler_capsule(name.encode(), upstream, small)
        self.memory = memory_of(self.handler)
        self.lanes = new LockedLanes(self.memory.lock(), self.memory.service())

    def __dealloc__(self):
        del self.lanes

    def reserve(self, uint16_t lane, int64_t size):
        """Make a lane's arena at least this large; False where upstream has no memory for it."""
        return host_reserve(self.memory[0], lane, size)


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

    cdef readonly DevicePool pool
    cdef uint32_t block
    cdef readonly object memory  # upstream's MemoryPointer, None for a block in the arena
    cdef public object event  # what memory hooks are to be told of its end; None for nothing
    cdef list used_on  # streams other than its own; None for none

    def __dealloc__(self):
        if self.pool is not None:
            if self.used_on is None:
                self.pool.core.release(self.block)
            else:
                self.pool.hold(self.block, self.used_on, self.memory)
            if self.event is not None:
                self.pool.tell_freed(self.event)


@cython.final
@cython.no_gc_clear  # its streams must still be there when it dies in a cycle
cdef class Busy:
    """Upstream's memory that streams may still use: whenever it goes back, the device is waited for, unless `idle`."""

    cdef object memory, streams
    cdef bint idle

    def __cinit__(self, memory, streams):
        self.memory, self.streams = memory, streams

    def __dealloc__(self):
        if not self.idle and self.streams is not None and not sys.is_finalizing():
            try:
                self.streams.synchronize()
            except Exception:
                pass  # nothing runs on a device that cannot be waited for


@cython.final
cdef class Held:
    """A block that is free, but for other streams that may still use it."""

    cdef list streams  # the objects: a stream must not go before an event is recorded on it
    cdef list events  # recorded there after the free; None where that was not possible yet
    cdef Busy memory  # upstream's, None for a block in an arena

    def __cinit__(self, list streams, list events, Busy memory):
        self.streams, self.events, self.memory = streams, events, memory


@cython.final
cdef class DevicePool(Backend):
    """The replay core of one device as a CuPy allocator.

    Parameters
    ----------
    device
        Device number.
    upstream, sampling
        Allocators, ``f(size) -> MemoryPointer``: what serves unplanned requests, and those of steps without a plan.
    memory_pointer, unowned_memory
        CuPy's classes.
    streams
        The device's streams, as `DeviceStreams` presents them; or None: everything is on stream 0.
    hooks_of_thread
        ``f() -> dict``: the calling thread's memory hooks, for one thread always the same object.
    hooked
        ``f(pool, size, hooks)``: how to serve a request while memory hooks are watching.
    told
        ``f(event, hooks)``: how to tell memory hooks of a block's end.
    """

    cdef CDevicePool core
    cdef readonly int device
    cdef readonly object upstream
    cdef object device_number, sampling, memory_pointer, unowned_memory
    cdef object hooks_of_thread, hooked, told, streams, current_stream
    cdef public object failed  # f(error): a request of upstream's has failed; or None
    cdef stream_function stream_pointer
    cdef object hooks  # of the thread `hooks_thread`
    cdef uint64_t hooks_thread  # Python's number for a thread, which never comes again; 0 for none
    cdef dict arenas  # address -> Busy
    cdef dict held  # block -> Held

    def __cinit__(
        self,
        int device,
        upstream,
        sampling,
        memory_pointer,
        unowned_memory,
        streams,
        hooks_of_thread,
        hooked,
        told,
    ):
        self.device = self.device_number = device
        self.upstream, self.sampling = upstream, sampling
        self.memory_pointer, self.unowned_memory = memory_pointer, unowned_memory
        self.hooks_of_thread, self.hooked, self.told = hooks_of_thread, hooked, told
        self.streams = streams
        if streams is not None:
            self.current_stream = streams.current
        if PyCapsule_IsValid(self.current_stream, STREAM_SIGNATURE):
            self.stream_pointer = <stream_function>PyCapsule_GetPointer(self.current_stream, STREAM_SIGNATURE)
        self.arenas = {}
        self.held = {}
        self.lanes = self.core.lanes()

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
        elif grant.waits:
            self.wait_for_uses(grant.id, stream)
        return self.memory_pointer(self.unowned_memory(grant.address, size, lease, self.device_number), 0)

    cdef ask_upstream(self, Lease lease, size, uint8_t reason):
        allocator = self.sampling if reason == <uint8_t>Reason.no_plan else self.upstream
        self.settle()
        try:
            lease.memory = self.ask(allocator, size)
        except Exception:
            if not self.give_back():
                self.fail(lease)
                raise
            try:
                lease.memory = self.ask(allocator, size)
            except Exception:
                self.fail(lease)
                raise

    cdef fail(self, Lease lease):
        """Note what the failing request found, and have the error that is on its way say so."""
        self.lanes.note_failure(lease.block)
        if self.failed is not None:
            self.failed(sys.exc_info()[1])

    cdef ask(self, allocator, size):
        memory = allocator(size)
        if not isinstance(memory, self.memory_pointer):
            raise PoolError(f"upstream returned {memory!r}; expected a cupy.cuda.MemoryPointer")
        return memory

    # ------------------------------------------------------------------------------------------------------ arenas

    cdef make_idle(self):
        if self.streams is not None:
            self.streams.synchronize()

    def reserve(self, uint16_t lane, int64_t size):
        """Make a lane's arena at least this large; False where upstream has no memory for it."""
        if size <= self.lanes.arena_size(lane):
            return True
        try:
            memory = self.ask(self.upstream, size)
        except Exception:
            return False
        self.make_idle()  # what streams still do with its memory is over then
        self.arenas[memory.ptr] = Busy.__new__(Busy, memory, self.streams)
        self.lanes.reserve(lane, memory.ptr, size)
        self.drop_dead_arenas()
        return True

    def drop_dead_arenas(self):
        """Give back retired arenas in which nothing lives; return how many."""
        dead = list(self.lanes.take_dead_arenas())
        for base in dead:
            del self.arenas[base]
        return len(dead)

    def give_back(self):
        """Give back what is held, and every arena in which nothing lives; return how many."""
        cdef size_t held = len(self.held)
        if held:
            self.make_idle()
            self.settle()
        self.lanes.retire_idle_arenas()
        return self.drop_dead_arenas() + held - len(self.held)

    # ------------------------------------------------------------------------------------------------------- steps

    def enter(self):
        """Take a berth for a step of this thread; None where it runs one."""
        self.settle()
        return Backend.enter(self)

    def begin_step(self, uint16_t lane, CorePlan plan, PlanSet others):
        """Start a lane's part of a step that is expected to follow `plan` (or None)."""
        # A stream that is being captured cannot wait for work from before the capture.
        may_wait = self.streams is None or not self.streams.capturing()
        self.lanes.begin_step(lane, _pointer(plan), others.plans, may_wait)

    def end_step(self, uint16_t lane):
        """Return (log, complete, clean, tag)."""
        outcome = Backend.end_step(self, lane)
        self.drop_dead_arenas()
        return outcome

    def take_outcomes(self):
        """Return [(lane, (log, complete, clean, tag))] of steps found that have ended."""
        self.drop_dead_arenas()
        return Backend.take_outcomes(self)

    # ----------------------------------------------------------------------------------------------------- streams

    def record_stream(self, Lease lease, stream):
        """Note that a block is used on another stream than its own, too."""
        if self.streams is None or stream.ptr == self.core.stream_of(lease.block):
            return
        if lease.used_on is None:
            lease.used_on = []
        if all(other.ptr != stream.ptr for other in lease.used_on):
            lease.used_on.append(stream)

    cdef hold(self, uint32_t block, list streams, memory):
        """Free a block that other streams may still use. Runs in finalizers: nothing is raised."""
        if sys.is_finalizing():
            self.core.release(block)
            return
        try:
            events = [self.streams.record(stream) for stream in streams]
        except Exception:
            # A stream that takes no event has ended badly, or its context has.
            try:
                self.make_idle()
            except Exception:
                pass
            self.core.release(block)
            return
        busy = None if memory is None else Busy.__new__(Busy, memory, self.streams)
        self.held[block] = Held.__new__(Held, streams, events, busy)
        self.core.hold(block, None not in events)

    cdef wait_for_uses(self, uint32_t granted, int64_t stream):
        """Have a stream wait for what other streams do with the blocks whose place it is given."""
        awaited = self.core.awaited(granted)
        events = []
        for block in awaited:
            held = <Held>self.held.pop(block, None)
            if held is not None:
                events += held.events
        self.core.drop_awaited(granted)
        for event in events:
            self.streams.wait(stream, event)

    def settle(self):
        """Let go of the held blocks that no stream uses any more. Not while the current stream is being captured."""
        cdef Held held
        if not self.held or self.streams.capturing():
            return
        for block in list(self.held):
            held = self.held.get(block)
            if held is None:
                continue
            for i, event in enumerate(held.events):
                if event is None:
                    held.events[i] = self.streams.record(held.streams[i])
            if all(event is not None and self.streams.done(event) for event in held.events):
                if self.held.pop(block, None) is not None:
                    self.core.let_go(block)
                    if held.memory is not None:
                        held.memory.idle = True


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
