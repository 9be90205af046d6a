# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the simulator and of `descend`, greedy descent and local search; the GIL is released meanwhile."""

from libc.stdint cimport int8_t, int32_t, uint8_t
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

import numpy as np

#: from collections.abc import Callable, Sequence
#:
#: import numpy as np
#: import numpy.typing as npt
#:
#: from .graph import IntArray, StepGraph
#: from .schedule import Rates

include "../packing/_anytime.pxi"
include "../packing/_column.pxi"


cdef extern from "scheduling/core/simulator/simulator.hpp" namespace "stowplan::scheduling" nogil:
    ctypedef int32_t Index

    cdef struct Rows:
        const int64_t* first
        const int64_t* index

    cdef struct Graph:
        int64_t n
        int64_t m
        Rows reads
        Rows writes
        const int64_t* phase
        const int64_t* workspace
        const double* seconds
        const int64_t* size
        const int64_t* storage
        const int64_t* held
        const int64_t* packed
        const uint8_t* resident
        const uint8_t* kept

    cdef struct Rates:
        double swap
        double pack

    enum class Way(int8_t):
        kept

    cdef struct Score:
        int64_t peak
        Index place
        Index rerun
        double seconds

    cdef struct Reruns:
        Index position
        Index first
        Index last

    cdef cppclass CSimulator "stowplan::scheduling::Simulator":
        CSimulator(const Graph&, Rates) except +
        void set_order(const int64_t*) except +
        void set_way(Index, Way) except +
        void set_goes(Index, Index, bint) except +
        void set_goes_after(Index, Index) except +
        Index first_use(Index)
        const Score& evaluate() except +
        const vector[int64_t]& live()
        const vector[Reruns]& reruns()
        const vector[Index]& rerun_operators()
        Index near(Index)
        Index last(Index)
        Index needed(Index)
        Index leaves(Index)
        Index returns(Index)
        void released(vector[Index]&) except +

cdef extern from "scheduling/core/descent/solver.hpp" namespace "stowplan::scheduling" nogil:
    cdef cppclass Places:
        vector[vector[int32_t]] before
        vector[vector[int32_t]] after
        vector[int32_t] movable

    cdef cppclass Task:
        const uint8_t* ways
        vector[vector[int32_t]] groups
        vector[vector[int32_t]] drops
        Places places
        int64_t budget
        double seconds
        bint coarse

    int64_t c_descend "stowplan::scheduling::descend"(
        const Graph&, const Rates&, Task&, const Control&, int64_t*, int64_t*) except +


cdef const uint8_t* flags(const uint8_t[::1] column) noexcept:
    return &column[0] if column.shape[0] else NULL


cdef class Columns:
    """Keeps a step graph's arrays alive while C++ looks at them."""

    cdef Graph view
    cdef object graph
    cdef object resident
    cdef object kept

    def __cinit__(self, object graph):
        cdef const double[::1] seconds = graph.seconds
        self.graph = graph
        self.resident = graph.resident.view(np.uint8)
        self.kept = graph.kept.view(np.uint8)
        self.view.n = len(graph)
        self.view.m = graph.values
        self.view.reads.first, self.view.reads.index = address(graph.reads.first), address(graph.reads.index)
        self.view.writes.first, self.view.writes.index = address(graph.writes.first), address(graph.writes.index)
        self.view.phase = address(graph.phase)
        self.view.workspace = address(graph.workspace)
        self.view.seconds = &seconds[0] if seconds.shape[0] else NULL
        self.view.size = address(graph.size)
        self.view.storage = address(graph.storage)
        self.view.held = address(graph.held)
        self.view.packed = address(graph.packed)
        self.view.resident = flags(self.resident)
        self.view.kept = flags(self.kept)


cdef class Simulator:
    """The live bytes of one graph under changing orders and ways, in C++ (``core/simulator/simulator.hpp``).

    It begins with the recorded order and all values KEPT. It trusts its caller that the order and the ways are ones
    that `require_valid` accepts: with others its answers mean nothing. One object serves one thread at a time.

    Parameters
    ----------
    graph
        n operators, m values; its columns are copied.
    swap_rate, pack_rate
        Bytes a second, of `Rates`.
    """

    cdef unique_ptr[CSimulator] core
    cdef Score last
    cdef readonly Py_ssize_t operators
    cdef readonly Py_ssize_t values
    cdef object storage

    def __cinit__(self, graph: StepGraph, double swap_rate, double pack_rate):
        cdef Rates rates
        self.operators, self.values = len(graph), graph.values
        if max(self.operators, self.values) >= 2**31 - 2:
            raise ValueError(f"{self.operators} operators and {self.values} values; expected fewer than 2**31 - 2")
        cdef Columns columns = Columns(graph)
        self.storage = graph.storage
        rates.swap, rates.pack = swap_rate, pack_rate
        self.core.reset(new CSimulator(columns.view, rates))

    def set_order(self, order: IntArray):
        """Take another order of all operators, int64 (n,)."""
        cdef Column column = np.ascontiguousarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(column), np.arange(self.operators)):
            raise ValueError(f"the order is not one of all operators, 0 to {self.operators - 1}, each once")
        with nogil:
            self.core.get().set_order(address(column))

    def set_way(self, Py_ssize_t storage, int way):
        """Change the way of one storage, named by the value that has it. The next `evaluate` costs little."""
        if not (0 <= storage < self.values and self.storage[storage] == storage):
            raise ValueError(f"value {storage} has no storage of its own, or is none of {self.values}")
        if not 0 <= way <= 4:
            raise ValueError(f"way {way}; expected 0 to 4")
        self.core.get().set_way(<Index>storage, <Way>way)

    def set_ways(self, way: IntArray):
        """Change the ways of all storages to those of the values that have them, int64 (m,)."""
        cdef Column column = np.ascontiguousarray(way, dtype=np.int64)
        cdef Column storage = self.storage
        if column.shape[0] != self.values:
            raise ValueError(f"{column.shape[0]} ways; expected {self.values}")
        if self.values and (np.min(column) < 0 or np.max(column) > 4):
            raise ValueError(f"a way {np.min(column)} or {np.max(column)}; expected 0 to 4")
        cdef CSimulator* core = self.core.get()
        cdef Py_ssize_t v
        with nogil:
            for v in range(column.shape[0]):
                if storage[v] == v:
                    core.set_way(<Index>v, <Way>column[v])

    def set_drops(self, Py_ssize_t storage, operators: Sequence[int]):
        """Let a storage, where it is DROPPED, go after these of the operators that use it, and no others."""
        if not (0 <= storage < self.values and self.storage[storage] == storage):
            raise ValueError(f"value {storage} has no storage of its own, or is none of {self.values}")
        cdef CSimulator* core = self.core.get()
        cdef Index s = <Index>storage
        for use in range(core.first_use(s), core.first_use(s + 1)):
            core.set_goes(s, use, False)
        for operator in operators:
            core.set_goes_after(s, operator)

    def evaluate(self) -> tuple[int, int, int, float]:
        """Peak in bytes, its position, the operator running again there or -1, extra seconds. Releases the GIL."""
        with nogil:
            self.last = self.core.get().evaluate()
        return self.last.peak, self.last.place, self.last.rerun, self.last.seconds

    def live(self) -> IntArray:
        """Bytes at each position's fullest moment in the last evaluation, (n,)."""
        return np.array(self.core.get().live(), dtype=np.int64)

    def recomputed(self) -> list[tuple[int, list[int]]]:
        """Positions before whose operator others run again, and these, in their order; of the last evaluation."""
        cdef const vector[Reruns]* reruns = &self.core.get().reruns()
        cdef const vector[Index]* again = &self.core.get().rerun_operators()
        found = []
        for i in range(reruns.size()):
            one = reruns[0][i]
            found.append((one.position, [again[0][k] for k in range(one.first, one.last)]))
        return found

    def released(self) -> IntArray:
        """For each value the position after which it goes for the last time, (m,); -1: it never was there, or stays."""
        cdef vector[Index] found
        self.core.get().released(found)
        return np.array(found, dtype=np.int64)

    def intervals(self) -> IntArray:
        """For each value positions of its storage, (3, m).

        Rows: the last near use; the last use by an operator; and, as of the last evaluation, by one or a rerun.
        """
        cdef CSimulator* core = self.core.get()
        rows = [(core.near(s), core.last(s), core.needed(s)) for s in self.storage.tolist()]
        return np.array(rows, dtype=np.int64).reshape(-1, 3).T

    def swapped(self, way: IntArray) -> list[tuple[int, int, int]]:
        """Storages of SWAPPED values; the positions before which each leaves and is back. Of the last evaluation."""
        cdef CSimulator* core = self.core.get()
        cdef Index s
        found = []
        for storage in np.flatnonzero(np.asarray(way) >= 3).tolist():
            s = <Index>storage
            if core.leaves(s) < core.returns(s) and core.leaves(s) < self.operators:
                found.append((storage, core.leaves(s), core.returns(s)))
        return found


def descend(
    graph: StepGraph,
    order: IntArray,
    way: IntArray,
    ways: npt.NDArray[np.uint8],
    budget: int,
    rates: Rates,
    *,
    drops: Sequence[Sequence[int]] | None = None,
    groups: Sequence[Sequence[int]] = (),
    before: Sequence[Sequence[int]] = (),
    after: Sequence[Sequence[int]] = (),
    movable: Sequence[int] = (),
    effort: int = 0,
    seed: int = 0,
    coarse: bool = False,
    time_limit: float | None = None,
    progress: Callable[[int, int, float], object] | None = None,
) -> tuple[IntArray, IntArray, list[list[int]], int, bool]:
    """Improve a valid schedule; return its order (n,), ways (m,), drops, evaluations, and whether Ctrl-C came.

    ``ways``: for each value that has a storage a bit for each `Way` that it may take, and 128 if it may be dropped
    after any use, (m,); 0 for the others.
    ``groups``: storages that may change together. ``before``, ``after``: for each operator those that must run before
    it and after it, for the ``movable`` ones. ``effort``: evaluations of local search. ``coarse``: change groups alone.
    """
    cdef Columns columns = Columns(graph)
    cdef Listener listener = Listener(progress, time_limit, effort, seed)
    cdef Rates speed
    cdef Task task
    cdef int64_t evaluations = 0
    allowed = np.ascontiguousarray(ways, dtype=np.uint8)
    speed.swap, speed.pack = rates.swap, rates.pack
    task.ways = flags(allowed)
    task.groups = groups
    task.drops = [()] * graph.values if drops is None else drops
    task.places.before, task.places.after, task.places.movable = before, after, movable
    task.budget = budget
    task.seconds = graph.seconds.sum()
    task.coarse = coarse
    found_order = np.array(order, dtype=np.int64)
    found_way = np.array(way, dtype=np.int64)
    cdef int64_t[::1] out_order = found_order
    cdef int64_t[::1] out_way = found_way
    if columns.view.n and columns.view.m:
        with nogil:
            evaluations = c_descend(columns.view, speed, task, listener.control, &out_order[0], &out_way[0])
    interrupted = listener.interrupted()
    return found_order, found_way[graph.storage], list(task.drops), evaluations, interrupted
