# The program's signals wait until a set-up, its undoing or a trial is over. Included by _recorder.pyx.
#
#     signal ──> Python's handler, before one of the next instructions          in the program
#            ──> _note ──> Python's handler, when the outermost call is over    in a function that is `unbroken`
#
# So what a handler raises finds a set-up whole or not begun, and is never taken for what a trial has raised. Only the
# main thread runs handlers; other threads' calls are as without this. Nothing that waits is so. O(signals), 10 us.

from posix.signal cimport SA_ONSTACK, sigaction, sigaction_t

cdef extern from "Python.h":
    int PyErr_SetInterruptEx(int)
    int PyErr_CheckSignals() except -1

# Not those that an instruction raises, which would be run again for ever.
_may_wait = signal.valid_signals() - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
cdef cbool _wait = False
cdef sigaction_t _noting, _own[65]
cdef volatile int _came[65]
_noting.sa_handler, _noting.sa_flags = _note, SA_ONSTACK


cdef void _note(int number) noexcept nogil:
    _came[number] = 1


def unbroken(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function in which no signal's handler runs: it runs when the call is over."""

    @wraps(function)
    def whole(*args, **named):
        global _wait
        if _wait or get_ident() != main_thread().ident:
            return function(*args, **named)
        numbers = [number for number in _may_wait if callable(getsignal(number))]
        _wait = True
        for number in numbers:
            sigaction(number, &_noting, &_own[<int>number])
        try:
            PyErr_CheckSignals()  # of what came before
            return function(*args, **named)
        finally:
            _wait = False
            for number in numbers:
                sigaction(number, &_own[<int>number], NULL)
                if _came[<int>number]:
                    _came[<int>number] = 0
                    PyErr_SetInterruptEx(number)

    return whole


def passed_on(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function for a finalizer, where nothing can be raised: the program gets what a handler raises."""

    @wraps(function)
    def passing(*args, **named):
        try:
            return function(*args, **named)
        except BaseException as error:
            forget(error)

    return passing
