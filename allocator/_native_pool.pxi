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

    cdef Upstream own_functions

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
