# Steps, and what runs apart from the program. Included by _core.pyx.
#
# A signal's exception is raised in Python's code, between any two of its instructions, and never in here. So what it
# must not cut in two is one call of what stands here: either it is done, or it is undone when the exception passes.

def set_aside(cbool aside) -> bool:
    """Let no pool see this thread's requests of NumPy from now on, or see them again; return whether it did not."""
    cdef cbool before = is_hidden()
    cdef cbool* flag = &is_hidden()
    flag[0] = aside
    return before


def runs_apart(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that runs in an empty context, where NumPy's handler is the default one, unseen by a pool."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        before = set_aside(True)
        try:
            return Context().run(function, *args, **kwargs)
        finally:
            set_aside(before)

    return wrapped


@cython.final
cdef class Step:
    """Begin a step on entry, end it on exit; an exception passes on.

    Parameters
    ----------
    lanes
        The `Lanes` that it is one of.
    key, keeps_results
        See `Pool.step`.
    """

    cdef object lanes, key, keeps_results
    cdef object step_slot, number

    def __init__(self, lanes: Lanes, key: Hashable, keeps_results: bool):
        self.lanes, self.key, self.keeps_results = lanes, key, keeps_results

    def __enter__(self):
        self.lanes.check()
        self.number = None
        try:
            entered = self.lanes.backend.enter()
        except MemoryError as error:  # of our own: the step's requests go upstream
            self.lanes.planning.failed(error)
            return
        if entered is None:
            raise self.lanes.nested()
        step_slot, number, lanes = entered
        try:
            self.lanes.begin_step(step_slot, lanes, self.key, self.keeps_results)
        except BaseException:
            self.lanes.backend.end(step_slot, number)
            raise
        self.step_slot, self.number = step_slot, number

    def __exit__(self, object kind, object error, object trace):
        if self.number is None:
            return
        try:
            self.lanes.end_step(self.step_slot, self.number, error)
        except BaseException:
            self.lanes.backend.end(self.step_slot, self.number)
            raise


cdef class Enterable:
    """What serves while it is entered, ``with pool:``; a subclass has `_enter`, `_leave` and `_before_leaving`."""

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, object kind, object error, object trace):
        try:
            self._before_leaving(error)
        finally:
            self._leave()


cdef class InterruptedPart:
    """A part of the program that is interrupted from now on; ends on exit."""

    cdef object lanes, before

    def __cinit__(self, lanes: Lanes):
        self.lanes, self.before = lanes, lanes.interruptions
        lanes.interrupt()

    def __enter__(self):
        pass

    def __exit__(self, object kind, object error, object trace):
        try:
            self.lanes.resume()
        except PoolError:
            raise
        except BaseException:  # a signal's, before it has ended
            self.lanes.be_interrupted(self.before)
            raise
