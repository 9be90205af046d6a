# Locks over a fork, and what is done in the child; see fork_handlers.py. Included by _core.pyx.
#
# No signal cuts these calls: what its handler raises meanwhile is raised at their end, and Python says that it ignores
# it.

cdef list _watched = []  # weak references to pools
cdef list _held = []  # locks, by the thread that forks
_one_at_a_time = Lock()


def watch_forks(pool: Pool):
    """Have a pool's locks held over forks, as long as it lives."""
    _watched.append(ref(pool, _watched.remove))


def pools() -> list[Pool]:
    """Return the pools that are alive."""
    return [pool for pool in [reference() for reference in list(_watched)] if pool is not None]


cdef _hold(lock):
    """Take a lock; return what was raised meanwhile, or None."""
    raised = None
    while True:
        try:
            lock.acquire()
            _held.append(lock)
            return raised
        except BaseException as error:
            raised = error


def before_fork():
    """Take all locks of the pools."""
    raised = [_hold(_one_at_a_time)]
    for pool in pools():
        raised.append(_hold(pool._told.mutex))
        for lanes in list(pool._by_device.values()):
            raised.append(_hold(lanes._mutex))
            raised += [_hold(step_slot.mutex) for step_slot in lanes._step_slots]
    for error in raised:
        if error is not None:
            raise error


def after_fork():
    """Let other threads in again."""
    while _held:
        _held.pop().release()


def after_fork_in_child(reset_workers: Callable[[], object]):
    """Forget what the threads were doing that are not there."""
    raised = None
    try:
        for reset in [reset_workers, *[pool._reset_after_fork for pool in pools()]]:
            try:
                reset()
            except BaseException as error:  # a signal's: it may be half done
                raised = error
                reset()
    finally:
        after_fork()
    if raised is not None:
        raise raised
