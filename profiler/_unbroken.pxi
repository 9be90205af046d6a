# The program's signals wait until a set-up, its undoing or a trial is over. Included by _recorder.pyx.
#
#     signal ──> Python's handler, before one of the next instructions          in the program
#            ──> _note ──> Python's handler, when the outermost call is over    in a function that is `unbroken`
#
# So what a handler raises finds a set-up whole or not begun, and is never taken for what a trial has raised. Only the
# main thread runs handlers; other threads' calls are as without this. Nothing that waits is held. O(signals), 10 us.

from posix.signal cimport SA_ONSTACK, sigaction, sigaction_t, sigemptyset

cdef extern from "Python.h":
    int PyErr_SetInterruptEx(int)
    int PyErr_CheckSignals() except -1

cdef enum:
    _SIGNALS = 65

cdef int _holds = 0
cdef sigaction_t _own[_SIGNALS]
cdef int _is_own[_SIGNALS]
cdef volatile int _came[_SIGNALS]
# Not those that an instruction raises, which would be run again for ever.
cdef list _may_wait = sorted(signal.valid_signals() - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


cdef void _note(int number) noexcept nogil:
    _came[number] = 1


cdef _hold():
    global _holds
    _holds += 1
    if _holds > 1:
        return
    cdef sigaction_t noting
    cdef int number
    sigemptyset(&noting.sa_mask)
    noting.sa_handler, noting.sa_flags = _note, SA_ONSTACK
    for number in _may_wait:
        _is_own[number] = callable(getsignal(number))
        if _is_own[number]:
            sigaction(number, &noting, &_own[number])


cdef void _let_go() noexcept:
    global _holds
    _holds -= 1
    cdef int number
    for number in range(1, _SIGNALS if _holds == 0 else 1):
        if _is_own[number]:
            sigaction(number, &_own[number], NULL)
            _is_own[number] = 0
            if _came[number]:
                _came[number] = 0
                PyErr_SetInterruptEx(number)


def unbroken(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function in which no signal's handler runs: it runs when the call is over."""

    @wraps(function)
    def whole(*args, **named):
        if get_ident() != main_thread().ident:
            return function(*args, **named)
        _hold()
        try:
            PyErr_CheckSignals()  # of what came before
            return function(*args, **named)
        finally:
            _let_go()

    return whole


def passed_on(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function for a finalizer, where nothing can be raised: the program gets what a signal's handler raises."""

    @wraps(function)
    def passing(*args, **named):
        try:
            return function(*args, **named)
        except BaseException as error:
            forget(error)

    return passing
