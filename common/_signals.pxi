# What a signal's handler has raised where nothing can be raised: in a finalizer, or in what the core asks of Python.
# Included by _recorder.pyx, and by the allocator's _core.pyx.

cdef extern from "Python.h":
    int Py_AddPendingCall(int (*function)(void*) except -1, void* argument)
    PyObject* PyErr_Occurred()


cdef forget(error):
    """End an exception here: CUDA's, one of ours, or a lack of memory. Any other is a signal's: the program gets it.

    The main thread, in which handlers run, raises it before one of its next instructions.
    """
    if isinstance(error, (MemoryError, StowplanError)):
        return
    if isinstance(error, RuntimeError) and hasattr(error, "status"):  # as CuPy's of CUDA's functions
        return
    Py_INCREF(error)
    if Py_AddPendingCall(_raise, <void*>error) != 0:  # too many wait
        Py_DECREF(error)
        raise error


cdef int _raise(void* kept) except -1:
    error = <object>kept
    Py_DECREF(error)
    raise error


cdef int _raise_pending() except -1:
    """Raise the exception that is set."""
    return 0 if PyErr_Occurred() == NULL else -1
