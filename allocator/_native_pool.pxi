# Pools under what is not NumPy: PyTorch's tensors. Included by _core.pyx.

cdef vector[HostMemory*] _retired  # of pools that are gone: what is alive may still be freed


cdef void _retire(HostMemory* memory, cbool served):
    """Give back what a pool that is gone leaves, and what those before it still had."""
    if host_retire(memory[0]) and not served:
        del memory
    elif not served:
        _retired.push_back(memory)
    cdef size_t i = 0
    while i < _retired.size():
        if host_retire(_retired[i][0]):
            del _retired[i]
            _retired[i] = _retired.back()
            _retired.pop_back()
        else:
            i += 1


@cython.final
cdef class HostBlock:
    """A block of bytes, as a buffer (``numpy.asarray(block)``). Its memory is free when nothing holds it any more.

    The garbage collector does not look into it, so that it goes after all finalizers of what is in a cycle with it.
    """

    cdef HostMemory* memory  # which stays while a block of it lives
    cdef void* begin
    cdef readonly size_t size

    #: def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dealloc__(self):
        if self.memory != NULL:
            self.memory.free(self.begin, SIZE_MAX)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.begin, self.size, 0, flags)

    @property
    def address(self) -> int:
        """Where it begins."""
        return <uintptr_t>self.begin


cdef class NativePool(HostBackend):
    """The lanes behind C functions.

    Parameters
    ----------
    small
        Requests below this many bytes are not planned.
    limit
        See `Backend.limit`.
    scope
        Whose steps are told apart.
    place
        What it can be installed in; its original functions are upstream. None: the C library is.
    """

    cdef readonly NativePlace place  #: NativePlace | None
    cdef Upstream own_functions
    cdef cbool served  # it may be called as long as the process lives

    def __init__(self, size_t small, int64_t limit=0, Scope scope=Scope.process, NativePlace place=None):
        cdef Upstream upstream = libc_upstream() if place is None else place.dispatcher.original()
        self.memory = new HostMemory(upstream, small, scope)
        self.limit, self.place = limit, place
        self.own_functions = functions_of(self.memory)
        host_limit(self.memory[0], limit)
        self.lanes = new LockedLanes(self.memory.lock(), self.memory.service().lanes())

    def __dealloc__(self):
        if self.installed:
            self.place.dispatcher.stop_serving()
        if self.memory != NULL:
            _retire(self.memory, self.served)

    @property
    def functions(self) -> int:
        """Address of the five functions (core/host_memory.hpp, `Upstream`) that serve from this pool alone."""
        return <uintptr_t>&self.own_functions

    @property
    def installed(self) -> bool:
        """Whether it serves in its place."""
        return self.place is not None and self.place.dispatcher.serving() == self.memory

    def block(self, size_t size) -> HostBlock:
        """Return a new `HostBlock`, for arrays whose class asks for each block itself.

        Raises
        ------
        MemoryError
            Neither upstream nor the limit has room for it.
        """
        cdef HostBlock block = HostBlock.__new__(HostBlock)
        block.begin, block.size = self.memory.malloc(size), size
        if block.begin == NULL:
            raise MemoryError(f"no memory for {size:,} bytes")
        block.memory = self.memory
        return block

    def install(self):
        """Serve in its place from now on. Precondition: it has one."""
        self.refuse_second(self.place.taken)
        if self.place.take is not None:
            host_trim(self.memory[0])  # what the library has freed by now would stay resident beside the arena
            self.place.take(self.place.functions)
        self.refuse_second(self.place.taken)  # by another thread, meanwhile
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
    """

    cdef Dispatcher* dispatcher  # neither is ever destroyed
    cdef Upstream* own_functions
    cdef object take, leave

    def __cinit__(
        self,
        uintptr_t original=0,
        take: Callable[[int], object] | None = None,
        leave: Callable[[], object] | None = None,
    ):
        self.take, self.leave = take, leave
        self.dispatcher = new Dispatcher((<Upstream*>original)[0] if original != 0 else libc_upstream())
        self.own_functions = new Upstream(self.dispatcher.functions())

    @property
    def functions(self) -> int:
        """Address of the five functions that the library is to call; good for ever."""
        return <uintptr_t>self.own_functions

    @property
    def taken(self) -> bool:
        """Whether a pool serves here."""
        return self.dispatcher.serving() != NULL
