# Pools of host memory: the lanes behind a NumPy memory handler, for a context or the process. Included by _core.pyx.

def keep_host_memory():
    """Have the C library keep what is freed, for the whole process; see core/host/host_pool.hpp."""
    keep_freed_memory()


@cython.final
cdef class NativePlace:
    """Where pools serve one after another: functions that a library calls, and goes on calling when they are gone.

    Parameters
    ----------
    original
        Address of the five functions that stood there before; 0: the C library's.
    take
        ``f(functions)``: has the library call them; again is as good as once. None: it does already.
    leave
        ``f()``: has it call its own again. A pool that serves no longer passes on what still comes.
    handler
        NumPy's default memory handler, in whose place it is, for all threads and contexts: a struct of function
        pointers behind a public capsule, one for the process; a new context has it. The pointers are replaced by the
        first pool that is installed, with the GIL held, and stay: arrays remember the handler. One place a process.
    """

    cdef Dispatcher* dispatcher  # neither is ever destroyed
    cdef Upstream* own_functions
    cdef object take, leave, handler

    def __cinit__(
        self,
        uintptr_t original=0,
        take: Callable[[int], object] | None = None,
        leave: Callable[[], object] | None = None,
        handler: Any = None,
    ):
        cdef Upstream before = (<Upstream*>original)[0] if original != 0 else libc_upstream()
        self.take, self.leave, self.handler = take, leave, handler
        if handler is not None:
            memcpy(&before, &handler_of(handler).allocator, sizeof(Upstream))
        self.dispatcher = new Dispatcher(before)
        self.own_functions = new Upstream(self.dispatcher.functions())

    @property
    def functions(self) -> int:
        """Address of the five functions that the library is to call; good for ever."""
        return <uintptr_t>self.own_functions

    @property
    def taken(self) -> bool:
        """Whether a pool serves here."""
        return self.dispatcher.serving() != NULL


cdef class HostBackend(Backend):
    """Lanes over host memory; a subclass owns the memory."""

    cdef HostMemory* memory
    cdef readonly int64_t limit
    cdef readonly NativePlace place  #: NativePlace | None
    cdef cbool served  # it may be called as long as the process lives

    def __dealloc__(self):
        del self.lanes

    @property
    def small(self) -> int:
        """Requests below this many bytes are not planned."""
        return self.memory.small()

    def lower_small(self, size_t small):
        """Have requests from so many bytes on planned, if that is fewer than before."""
        self.memory.lower_small(small)

    @property
    def grows_in_place(self) -> bool:
        """Always: its addresses are set aside."""
        return True

    def reserve(self, uint16_t lane, int64_t size) -> bool:
        """Make a lane's arena at least this large; False where upstream has no memory for it."""
        return host_reserve(self.memory[0], lane, size)

    def serve_by_heap(self):
        """Serve by the heap alone until a step is marked."""
        host_serve_by_heap(self.memory[0])

    @property
    def installed(self) -> bool:
        """Whether it serves in its place."""
        return self.place is not None and self.place.dispatcher.serving() == self.memory

    cdef int refuse_second(self, cbool taken) except -1:
        if taken:
            raise PoolError(
                f"{'this pool' if self.installed else 'another pool'} serves already, and it serves the whole "
                "process; expected one at a time: uninstall it first"
            )
        return 0

    cdef int refuse_absent(self) except -1:
        if not self.installed:
            raise PoolError("this pool is not installed")
        return 0

    def install(self):
        """Serve in its place from now on. Precondition: it has one."""
        self.refuse_second(self.place.taken)
        if self.place.take is not None:
            host_trim(self.memory[0])  # what the library has freed by now would stay resident beside the arena
            self.place.take(self.place.functions)
        self.refuse_second(self.place.taken)  # by another thread, meanwhile
        if self.place.handler is not None:
            memcpy(&handler_of(self.place.handler).allocator, self.place.own_functions, sizeof(Upstream))
            self.place.handler = None
        self.served = True
        self.place.dispatcher.serve(self.memory)

    def uninstall(self):
        """Serve there no longer. What was handed out stays the pool's own."""
        self.refuse_absent()
        leave = self.place.leave
        try:
            if leave is not None:
                leave()
        except BaseException:  # a signal's, perhaps before it began
            leave()
            raise
        finally:
            self.place.dispatcher.stop_serving()

    def counters(self) -> dict[str, Any]:
        """Return the counters of all lanes, and of the heap where it has served alone."""
        return _counters(host_counters(self.memory[0]))

    def trim(self):
        """Give back to the system what is kept for later."""
        host_trim(self.memory[0])


cdef class HandlerPool(HostBackend):
    """The lanes behind a NumPy memory handler.

    The capsule owns the core: arrays hold the capsule, so either may be dropped first.
    """

    cdef readonly object handler  #: Any
    cdef object entries  # of each thread that has entered: NumPy's handlers before, and how many are its parent's

    def __init__(self, name: str, default_handler: Any, size_t small, int64_t limit=0, NativePlace place=None):
        cdef const Upstream* original = &place.dispatcher.original() if place is not None else NULL
        self.handler = make_handler_capsule(name.encode(), default_handler, small, original)
        self.memory = memory_of(self.handler)
        self.limit, self.place = limit, place
        self.entries = local()
        host_limit(self.memory[0], limit)
        self.lanes = new LockedLanes(self.memory.lock(), self.memory.service().lanes())

    @property
    def is_innermost(self) -> bool:
        """Whether it serves this context."""
        return PyDataMem_GetHandler() is self.handler

    def start_serving(self):
        """Serve this context, until `stop_serving`."""
        cdef list before = self._before()
        if len(before) > getattr(self.entries, "inherited", 0):
            raise PoolError("this thread has entered this pool already")
        before.append(PyDataMem_SetHandler(self.handler))

    def stop_serving(self):
        """Have the handler before serve it."""
        cdef list before = self._before()
        if not (before and self.is_innermost):
            raise PoolError(
                "this pool does not serve here: leave it in the thread or task that entered it, "
                "and leave pools that were entered after it first"
            )
        PyDataMem_SetHandler(before.pop())

    cdef list _before(self):
        try:
            return self.entries.before
        except AttributeError:
            self.entries.before = before = []
            return before

    def inherit(self):
        """Let this thread, which a fork has begun, enter once more what its parent has entered: it serves already."""
        self.entries.inherited = len(self._before()) if self.is_innermost else 0

    def install(self):
        HostBackend.install(self)
        Py_INCREF(self.handler)  # for ever: its core may still be asked
