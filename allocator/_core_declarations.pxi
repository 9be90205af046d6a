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
    cdef cppclass Counters:
        vector[pair[string, int64_t]] named_requests() except +
        vector[pair[string, int64_t]] named() except +


cdef extern from "replay.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass Event "stowplan::Event":
        pass

    cdef cppclass Grant "stowplan::Grant":
        uintptr_t address
        uint32_t id

    cdef cppclass CStepOutcome "stowplan::allocator::StepOutcome":
        vector[Event] log
        cbool complete
        cbool clean
        uint64_t tag

    cdef cppclass Range:
        uintptr_t begin
        uintptr_t end


cdef extern from "diagnosis.hpp" namespace "stowplan::allocator" nogil:
    cdef struct LiveBlock:
        int64_t size
        int64_t stream
        int64_t age
        uint32_t request
        uint16_t lane
        uint32_t slot
        uint64_t tag
        const char* place

    cdef struct Situation:
        uint16_t step_slot
        cbool in_step
        uint64_t step
        uint32_t requests
        uint64_t planned_requests
        int64_t live_bytes
        int64_t upstream_bytes
        int64_t arena_bytes
        size_t offered
        LiveBlock largest[10]

    cdef struct Failure:
        uint64_t number
        LiveBlock asked
        Situation found


cdef extern from "step_slots.hpp" namespace "stowplan::allocator" nogil:
    cpdef enum class Scope(uint8_t):
        """Whose steps a pool tells apart: each thread's, or those of the whole process."""

        thread
        process


cdef extern from "lanes.hpp" namespace "stowplan::allocator" nogil:
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
        uintptr_t simulated
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
        vector[pair[int64_t, int64_t]] occupied(uint16_t) except +
        void reserve(uint16_t, uintptr_t, int64_t) except +
        Counters counters()
        Situation situation()
        Failure failure()
        void reset_peaks()

    cdef cppclass SpinLock "stowplan::SpinLock":
        pass


cdef extern from "libc_upstream.hpp" namespace "stowplan" nogil:
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
    cbool& is_hidden "stowplan::is_hidden" ()


cdef extern from "dispatcher.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass Dispatcher:
        Dispatcher(const Upstream&) except +
        const Upstream& original()
        const HostMemory* serving()
        void serve(HostMemory*) except +
        void stop_serving()
        Upstream functions()


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)


cdef extern from "cuda_api.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass CudaApi:
        pass
    string find_driver(CudaApi&)
    CudaApi no_device()


cdef extern from "device_heap.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass CDeviceHeap "stowplan::allocator::DeviceHeap":
        void make_room() except +
        void begin_step()
        int64_t held()
        int64_t peak()
        void reset_peak()
        int64_t limit()
        void set_limit(int64_t)
        size_t free_ranges()


cdef extern from "cuda_pool.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass Allocator:
        void* self
        cbool serves_all, serves_samples
        int (*take)(void*, void*, int64_t, uintptr_t*, uint64_t*) noexcept
        void (*give)(void*, uint64_t) noexcept
        void (*trim)(void*) noexcept
        cbool (*collect)(void*) noexcept
        cbool (*has_dropped)(void*, int64_t) noexcept

    cdef cppclass CudaGraphs:
        int64_t reserved_bytes()

    cdef cppclass CudaMemory:
        int64_t limit()
        void set_fraction(double)
        void use(const Allocator&)
        void note_stream(int64_t) except +
        cbool leave(int64_t, cbool) except +
        void lose(int64_t) except +
        CDeviceHeap& heap()

    cdef cppclass CDevicePool "stowplan::allocator::DevicePool":
        cbool has_virtual_memory()
        size_t drop_dead_arenas() except +
        void note_users() except +

    cdef cppclass Served:
        uintptr_t address

    cdef cppclass Uses:
        pass

    cdef cppclass CCudaPool "stowplan::allocator::CudaPool":
        LockedLanes* lanes()
        CDevicePool& pool()
        CudaMemory& memory()
        CudaGraphs& graphs()
        cbool serve(int64_t, int64_t, void*, Served&, int&) except +
        void end(const Served&, const Uses*) except +
        void use(const Served&, int64_t, Uses&) except +
        cbool reserve(uint16_t, int64_t) except +
        size_t give_back() except +
        void settle() except +
        bint make_idle()

    cdef cppclass CCudaPools "stowplan::allocator::CudaPools":
        CCudaPools(const CudaApi&, Scope, int64_t) except +
        CCudaPool& on(int) except +
        void record_stream(void*, int64_t) except +
        void abandon()
        cbool is_abandoned()
        cbool has_served()
        cbool is_idle() except +
        intptr_t (*current_stream)() noexcept

    CCudaPools* installed_pools "stowplan::allocator::CudaPools::installed"()
    void install_pools "stowplan::allocator::CudaPools::install"(CCudaPools*)


cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyDataMemAllocator:  # as Upstream, field by field
        pass
    ctypedef struct PyDataMem_Handler:
        PyDataMemAllocator allocator
    object PyDataMem_SetHandler(object handler)
    object PyDataMem_GetHandler()


cdef extern from "common/numpy_capsule.hpp" namespace "stowplan":
    Upstream functions_of(HostMemory*)
    HostMemory* memory_of "stowplan::memory_of<stowplan::allocator::HostLanes>" (object capsule)
    object make_handler_capsule "stowplan::make_handler_capsule<stowplan::allocator::HostLanes>" (
        const char* name, object upstream, size_t small, const Upstream* below
    )
    PyDataMem_Handler* handler_of(object capsule) except NULL


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
