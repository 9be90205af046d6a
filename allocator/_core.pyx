# distutils: language = c++
# cython: c_string_type=str, c_string_encoding=ascii
"""Binding of the replay core (allocator/core), of its NumPy handler and of its CuPy allocator.

Thin: the decisions are in C++ and in Python. No framework is imported here: CuPy's classes are handed in.
"""

import gc as _gc
from collections import namedtuple
from contextvars import Context
from functools import wraps
from threading import Lock, local
from weakref import ref

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.dict cimport PyDict_GetItem, PyDict_Size
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF, Py_INCREF

from libc.stdint cimport SIZE_MAX, int64_t, intptr_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport pair
from libcpp.vector cimport vector

import numpy as np

cimport numpy as cnp

#: from collections.abc import Callable, Hashable, Iterable
#: from enum import IntEnum
#: from typing import Any, NamedTuple, ParamSpec, TypeVar
#:
#: import numpy as np
#: import numpy.typing as npt
#: from typing_extensions import Self
#:
#: from .lanes import Lanes
#: from .pool import Pool
#:
#: _P = ParamSpec("_P")
#: _R = TypeVar("_R")
#: _Column = npt.NDArray[np.int64]
#:
#: class Scope(IntEnum):
#:     thread = 0
#:     process = 1

from ..common.errors import PoolError, StowplanError
from ..profiler.events import EVENT_DTYPE

cnp.import_array()

include "_core_declarations.pxi"
include "../common/_signals.pxi"


cdef class CorePlan:
    """A plan in the core's form (core/replay/plan.hpp). All columns are int64; `tag` is not 0."""

    cdef shared_ptr[CPlan] plan

    def __init__(
        self,
        offset: _Column,
        requested: _Column,
        capacity: _Column,
        stream: _Column,
        due_begin: _Column,
        due: _Column,
        int64_t arena_bytes,
        uint64_t tag,
        int steps=1,
    ):
        n = len(offset)
        fits = len(due_begin) == n + 2 and due_begin[n + 1] == len(due)
        if not (fits and len(requested) == len(capacity) == len(stream) == n):
            raise ValueError("the columns of a plan disagree in length")
        if steps < 1 or n % steps != 0:
            raise ValueError(f"a plan of {steps} steps and {n} requests")
        self.plan = make_shared[CPlan]()
        cdef CPlan* plan = self.plan.get()
        _copy_column(plan.offset, offset)
        _copy_column(plan.requested, requested)
        _copy_column(plan.capacity, capacity)
        _copy_column(plan.stream, stream)
        _copy_numbers(plan.due_begin, due_begin)
        _copy_numbers(plan.due, due)
        plan.arena_bytes = arena_bytes
        plan.tag = tag
        plan.step_length = n // steps if steps > 1 else 0
        with nogil:
            plan.derive()

    @property
    def nbytes(self) -> int:
        """Bytes of its columns."""
        return self.plan.get().bytes()


cdef class PlanSet:
    """Plans in the core's form, most likely first."""

    cdef vector[PlanPtr] plans

    def __init__(self, plans: Iterable[CorePlan] = ()):
        for plan in plans:
            self.plans.push_back(<PlanPtr>(<CorePlan?>plan).plan)


include "_values.pxi"


cdef int _take_starts(vector[CLaneStart]& starts, steps) except -1:
    """Append `LaneStart`s. Nothing is copied but by C++ functions that may raise."""
    cdef CLaneStart* start
    cdef PlanSet others
    for step in steps:
        starts.resize(starts.size() + 1)
        start, others = &starts.back(), step.others
        start.lane, start.arena_bytes = step.lane, step.arena_bytes
        start.timestamps, start.guests = step.timestamps, step.guests
        if step.plan is not None:
            start.plan = <PlanPtr>(<CorePlan?>step.plan).plan
        start.others.assign(others.plans.begin(), others.plans.end())
    return 0


cdef list _lane_outcomes(vector[LaneOutcome]& outcomes):
    """Return [(lane, StepOutcome)]."""
    cdef size_t i
    return [(outcomes[i].lane, _outcome(outcomes[i].outcome)) for i in range(outcomes.size())]


cdef class Backend:
    """What steps need of a pool's core: step slots for threads, and in each a lane for every stream; see core/lanes.

    A step is `enter`, `begin` and `end`: what its lanes may follow depends on which they are.
    """

    cdef LockedLanes* lanes  # the subclass's own

    @property
    def limit(self) -> int:
        """The most bytes that arenas and upstream's blocks may take together; 0: as many as there are."""
        return 0

    @property
    def scope(self) -> Scope:
        """Whose steps are told apart, a `Scope`."""
        return self.lanes.scope()

    def enter(self) -> tuple[int, int, list[int]] | None:
        """Take a step slot for this thread, or return None where it runs a step.

        Returns
        -------
        The step slot's number, the step's number in it, and the numbers of its lanes.
        """
        cdef Entered entered = self.lanes.enter()
        if entered.step_slot < 0:
            return None
        try:
            if entered.takes_over and self.make_idle():  # else no lane passes to another stream in this step
                self.note_users()  # which streams go
                entered.lanes = self.lanes.welcome(entered.step_slot)
                self.note_users()
            return entered.step_slot, entered.step, entered.lanes
        except BaseException:
            self.lanes.end(entered.step_slot, entered.step)
            raise

    def begin(self, starts: list[LaneStart]):
        """Begin the step in each lane of its step slot; `starts` has a `LaneStart` for each.

        An arena that is too small is made larger, if upstream has the memory; else the lane goes without its plans.
        """
        cdef vector[CLaneStart] lanes
        _take_starts(lanes, starts)
        if not self.lanes.begin(lanes, True):
            for start in starts:
                self.reserve(start.lane, start.arena_bytes)
            self.lanes.begin(lanes, False)

    def end(self, uint16_t step_slot, uint64_t step) -> list[tuple[int, StepOutcome]]:
        """End a step, and leave its step slot; return [(lane, StepOutcome)] of its lanes; of one that has ended, []."""
        cdef vector[LaneOutcome] outcomes = self.lanes.end(step_slot, step)
        return _lane_outcomes(outcomes)

    def end_steps_of_others(self) -> list[int]:
        """End the steps of all threads but this one: a fork has left them behind. Return their step slots."""
        return list(self.lanes.end_steps_of_others())

    cdef note_users(self):
        """Note which streams the lanes serve."""

    cdef bint make_idle(self) except -1:
        """Return when no work uses the memory of blocks that are free; False where that cannot be waited for now."""
        return True

    def settle(self):
        """Let go of blocks whose end was waiting for other streams, where these are done."""

    def lanes_of(self, uint16_t step_slot) -> list[int]:
        """Return the numbers of a step slot's lanes; there may be more of them with every step."""
        return list(self.lanes.lanes_of(step_slot))

    def add_lane(self, uint16_t step_slot) -> int:
        """Make a lane for a stream that is not known yet; return its number."""
        return self.lanes.add_lane(step_slot)

    def set_interrupted(self, cbool interrupted):
        """Send this thread's requests upstream, if it runs a step."""
        self.lanes.set_interrupted(interrupted)

    def arena_bytes(self, uint16_t lane) -> int:
        """Return the size of a lane's arena."""
        return self.lanes.arena_bytes(lane)

    def occupied(self, uint16_t lane) -> npt.NDArray[np.int64]:
        """Return where in a lane's arena late blocks have stayed for more than a step: offsets, int64 (m, 2)."""
        return np.array(self.lanes.occupied(lane), dtype=np.int64).reshape(-1, 2)

    @property
    def grows_in_place(self) -> bool:
        """Whether an arena is made larger where it is; else a larger one takes its place."""
        return False

    @property
    def bottom_last(self) -> bool:
        """Whether an arena may have less memory than its plans need for a step, its beginning last."""
        return False

    def counters(self) -> dict[str, Any]:
        """Return the counters of all lanes."""
        return _counters(self.lanes.counters())

    def situation(self) -> dict[str, Any]:
        """Return what fills the memory, as this thread sees it; see core/replay/diagnosis.hpp."""
        return _situation(self.lanes.situation())

    def failure(self) -> dict[str, Any] | None:
        """Return the last request that upstream had no memory for, and what it found; or None."""
        cdef Failure failure = self.lanes.failure()
        if failure.number == 0:
            return None
        return {**failure, "found": _situation(failure.found), "limit": self.limit}

    @property
    def small(self) -> int:
        """Requests below this many bytes are not planned."""
        return 0

    def lower_small(self, small: int):
        """Have requests from so many bytes on planned, if that is fewer than before."""

    def reserve(self, uint16_t lane, int64_t size) -> bool:
        """Make a lane's arena at least this large; False where upstream has no memory for it."""
        raise NotImplementedError

    def reset_peaks(self):
        """Forget peaks: what is held now is the most."""
        self.lanes.reset_peaks()


cdef class Replay(Backend):
    """The bare core, lanes and all, over addresses without memory behind them: for tests and simulations."""

    cdef Lanes* core
    cdef SpinLock lock

    def __cinit__(self, int64_t unit=1, Scope scope=Scope.thread):
        self.core = new Lanes(unit, scope)
        self.lanes = new LockedLanes(self.lock, self.core[0])
        self.run_on(1)

    def __dealloc__(self):
        del self.lanes
        del self.core

    def run_on(self, uintptr_t thread):
        """Have all that follows come from a thread of this number."""
        self.lanes.simulated = thread

    def request(self, int64_t size, int64_t stream=0) -> tuple[int, int]:
        """Return (address or 0, block id). Its stream may wait for what is held."""
        cdef Grant grant = self.core.request(size, stream, self.lanes.simulated, True)
        return grant.address, grant.id

    def adopt(self, uint32_t block, uintptr_t address):
        self.core.adopt(block, address)

    def cancel(self, uint32_t block):
        self.core.cancel(block)

    def release(self, uint32_t block) -> bool:
        """Free a block; True where it is upstream's."""
        return self.core.release(block)

    def hold(self, uint32_t block, cbool may_wait=True):
        """Free a block that other streams may still use."""
        self.core.hold(block, may_wait)

    def let_go(self, uint32_t block) -> bool:
        """Say that they do not; True where it is upstream's."""
        return self.core.let_go(block)

    def take_awaited(self, uint32_t granted) -> list[int]:
        """Return the held blocks whose place this block took, and those that earlier calls have not returned."""
        awaited = list(self.core.awaited(granted))
        self.core.drop_awaited(granted)
        return awaited

    def place_arena(self, uintptr_t base, int64_t size, uint16_t lane=0):
        """Have a lane's arena there."""
        self.lanes.reserve(lane, base, size)

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return {block id: (begin, end)} of the live blocks, and of the held ones."""
        return {i: (self.core.range_of(i).begin, self.core.range_of(i).end) for i in self.core.live_blocks()}

    def assert_invariants(self):
        self.core.assert_invariants()


include "_step.pxi"
include "_forks.pxi"
include "_host_pool.pxi"
include "_native_pool.pxi"
include "_device_owner.pxi"
include "_cuda_pool.pxi"
include "_device_pool.pxi"
