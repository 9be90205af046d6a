# What the bindings see of the C++ core, and how they copy columns; included by _core.pyx.

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
        uint32_t step_length
        void derive() except +
        size_t bytes()

    ctypedef shared_ptr[const CPlan] PlanPtr


cdef extern from "counts.hpp" namespace "stowplan::allocator" nogil:
    cdef enum class Reason(uint8_t):
        no_plan

    cdef cppclass NamedCount:
        const char* name
        int64_t value

    cdef cppclass Counters:
        int64_t peak_live_bytes
        vector[NamedCount] named_requests() except +
        vector[NamedCount] named() except +


cdef extern from "replay.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass Event:
        pass

    cdef cppclass Grant:
        uintptr_t address
        uint32_t id
        uint8_t reason
        cbool waits

    cdef cppclass CStepOutcome "stowplan::allocator::StepOutcome":
        vector[Event] log
        cbool complete
        cbool clean
        uint64_t tag

    cdef cppclass Range:
        uintptr_t begin
        uintptr_t end

    cdef cppclass CReplay "stowplan::allocator::Replay":
        vector[Range] stayers() except +
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
        uint16_t step_slot
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


cdef extern from "step_slots.hpp" namespace "stowplan::allocator" nogil:
    cpdef enum class Scope(uint8_t):
        """Whose steps a pool tells apart: each thread's, or those of the whole process."""

        thread
        process


cdef extern from "lanes.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass optional_step_slot "std::optional<stowplan::allocator::StepSlotNumber>":
        cbool has_value()
        uint16_t value()

    cdef cppclass CLaneStart "stowplan::allocator::LaneStart":
        uint16_t lane
        PlanPtr plan
        vector[PlanPtr] others
        int64_t arena_bytes
        cbool timestamps
        cbool guests

    cdef cppclass LaneOutcome:
        uint16_t lane
        CStepOutcome outcome

    cdef cppclass Lanes:
        Lanes(int64_t, Scope) except +
        Grant request(int64_t, int64_t, uintptr_t, cbool) except +
        void adopt(uint32_t, uintptr_t)
        void cancel(uint32_t)
        cbool release(uint32_t)
        void hold(uint32_t, cbool) except +
        cbool let_go(uint32_t) except +
        const vector[uint32_t]& awaited(uint32_t)
        void drop_awaited(uint32_t)
        optional_step_slot enter(uintptr_t) except +
        void begin(const CLaneStart&) except +
        vector[LaneOutcome] end(uint16_t) except +
        const vector[uint16_t]& lanes_of(uint16_t)
        void welcome(uint16_t) except +
        void set_interrupted(uintptr_t, cbool)
        CReplay& lane(uint16_t)
        const Counters& counters()
        Situation situation(uintptr_t)
        vector[uint32_t] live_blocks() except +
        Range range_of(uint32_t)
        void assert_invariants() except +


cdef extern from "locked_lanes.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass Entered:
        int step_slot
        uint64_t step
        cbool takes_over
        vector[uint16_t] lanes

    cdef cppclass LockedLanes:
        LockedLanes(SpinLock&, Lanes&)
        Entered enter() except +
        vector[uint16_t] welcome(uint16_t) except +
        cbool begin(const vector[CLaneStart]&, cbool) except +
        vector[LaneOutcome] end(uint16_t, uint64_t) except +
        vector[uint16_t] end_steps_of_others() except +
        vector[uint16_t] lanes_of(uint16_t) except +
        Scope scope()
        uint16_t add_lane(uint16_t) except +
        void set_interrupted(cbool) except +
        int64_t arena_bytes(uint16_t)
        vector[Range] stayers(uint16_t) except +
        void reserve(uint16_t, uintptr_t, int64_t) except +
        Counters counters()
        Situation situation()
        Failure failure()
        void reset_peaks()

    cdef cppclass SpinLock "stowplan::profiler::SpinLock":
        pass


cdef extern from "libc_upstream.hpp" namespace "stowplan::profiler" nogil:
    cdef cppclass Upstream:
        Upstream()
        Upstream(const Upstream&)

    Upstream libc_upstream()


cdef extern from "host_pool.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass HostLanes:
        Lanes& lanes()

    cdef cppclass HostMemory "stowplan::allocator::HostMemory":
        HostMemory(const Upstream&, size_t, Scope) except +
        void* malloc(size_t) except +
        void free(void*, size_t)
        SpinLock& lock()
        HostLanes& service()
        size_t small()
        cbool lower_small(size_t)

    cbool host_retire(HostMemory&) except +
    cbool host_reserve(HostMemory&, uint16_t, int64_t) except +
    void host_trim(HostMemory&)
    void host_limit(HostMemory&, int64_t)
    void host_serve_by_heap(HostMemory&)
    Counters host_counters(HostMemory&)
    void keep_freed_memory()
    cbool& is_hidden "stowplan::profiler::is_hidden" ()


cdef extern from "dispatcher.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass Dispatcher:
        Dispatcher(const Upstream&) except +
        const Upstream& original()
        const HostMemory* serving()
        void serve(HostMemory*) except +
        void stop_serving()
        Upstream functions()

    Upstream functions_of(HostMemory*)


cdef extern from "device.hpp" namespace "stowplan::allocator":
    cdef cppclass Answer:
        uintptr_t address
        uint64_t memory
        uint64_t error
        cbool out_of_memory

    cdef cppclass Device:
        void* owner
        int (*ask)(void*, void*, int64_t, cbool, Answer*) except -1
        int (*trim)(void*) except -1
        int64_t (*room)(void*, cbool) except -1
        int (*note_arenas)(void*, int64_t) except -1
        int (*capturing)(void*) except -1
        int (*synchronize)(void*) except -1
        int (*record)(void*, uint64_t, uint64_t*) except -1
        int (*done)(void*, uint64_t) except -1
        int (*wait)(void*, int64_t, uint64_t) except -1
        void (*unguard)(void*, uint64_t) noexcept
        void (*drop)(void*, uint64_t) noexcept
        void (*forget_error)(void*) noexcept


cdef extern from "virtual_arena.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass VirtualMemory:
        int64_t page()

    cdef cppclass VirtualArena:
        pass


ctypedef shared_ptr[VirtualArena] VirtualArenaPtr


cdef extern from "device_pool.hpp" namespace "stowplan::allocator":  # with the GIL: it calls its owner
    cdef cppclass CDevicePool "stowplan::allocator::DevicePool":
        void connect(const Device&)
        void use_virtual_memory(const VirtualMemory&)
        cbool has_virtual_memory()
        vector[VirtualArenaPtr] close()
        Grant request(int64_t, int64_t) except +
        Answer ask_upstream(uint32_t, int64_t, Reason, void*) except +
        void release(uint32_t)
        void hold(uint32_t, const vector[uint64_t]&, uint64_t) except +
        size_t settle() except +
        int64_t stream_of(uint32_t)
        cbool reserve(uint16_t, int64_t) except +
        size_t drop_dead_arenas() except +
        size_t give_back() except +
        LockedLanes* lanes()


cdef extern from "profiler/numpy_capsule.hpp" namespace "stowplan::profiler":
    HostMemory* memory_of "stowplan::profiler::memory_of<stowplan::allocator::HostLanes>" (object capsule)


cdef extern from "numpy/arrayobject.h":
    object PyDataMem_SetHandler(object handler)
    object PyDataMem_GetHandler()


cdef extern from "block_table.hpp" namespace "stowplan::profiler":
    const uint32_t NO_BLOCK "stowplan::profiler::kNoBlock"


cdef extern from "allocator/default_handler.hpp" namespace "stowplan::allocator":
    object make_pool_capsule(const char* name, object default_capsule, size_t small)
    cbool install(object default_capsule, object capsule) except False
    cbool is_installed(object capsule)
    void uninstall()


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
