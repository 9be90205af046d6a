# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the solvers for the order of operators; the GIL is released while solving, and taken to report."""

from libc.stdint cimport int32_t
from libcpp.utility cimport move
from libcpp.vector cimport vector

import numpy as np

#: from collections.abc import Callable, Sequence
#:
#: from .graph import IntArray
#:
#: SOLVERS: dict[str, int]
#: FOUND_BY: tuple[str, ...]

include "../packing/_anytime.pxi"


cdef extern from "scheduling/core/order/graph.hpp" namespace "stowplan::ordering" nogil:
    cdef cppclass Storage:
        int64_t size
        cbool to_end
        vector[int32_t] starts
        vector[int32_t] ends

    cdef cppclass Draft:
        vector[int64_t] extra
        vector[vector[int32_t]] before
        vector[Storage] storages

cdef extern from "scheduling/core/order/incumbent.hpp" namespace "stowplan::ordering" nogil:
    cdef enum class Method:
        kJoined

cdef extern from "scheduling/core/order/solver.hpp" namespace "stowplan::ordering" nogil:
    cdef enum class Solver:
        kGreedy
        kExact
        kLocal
        kAuto

    cdef cppclass Answer:
        vector[int32_t] order
        int64_t lower_bound
        Method found_by
        int64_t states

    Answer c_solve "stowplan::ordering::solve"(Draft, Solver, const Control&) except +


SOLVERS = {
    "greedy": <int>Solver.kGreedy,
    "exact": <int>Solver.kExact,
    "local": <int>Solver.kLocal,
    "auto": <int>Solver.kAuto,
}
FOUND_BY = ("joined", "greedy", "exact", "local")


def solve(
    solver: str,
    extra: Sequence[int],
    before: Sequence[Sequence[int]],
    size: Sequence[int],
    kept: Sequence[bool],
    writers: Sequence[Sequence[int]],
    users: Sequence[Sequence[int]],
    time_limit: float | None,
    progress: Callable[[int, int, float], object] | None,
) -> tuple[IntArray, int, str, int, bool]:
    """Order n operators with ``extra`` workspace, each after those ``before`` it, over m storages.

    Returns the order (n,), the lower bound, the solver that found it, the sets of operators looked at, and
    whether Ctrl-C ended it.
    ``progress(peak, lower_bound)`` is called several times a second; the search stops where it returns False.
    """
    cdef Draft draft
    draft.extra, draft.before = extra, before
    draft.storages.resize(len(size))
    for s in range(len(size)):
        draft.storages[s].size, draft.storages[s].to_end = size[s], kept[s]
        draft.storages[s].starts, draft.storages[s].ends = writers[s], users[s]
    cdef Listener listener = Listener(progress, time_limit)
    cdef Solver which = <Solver><int>SOLVERS[solver]
    cdef Answer answer
    with nogil:
        answer = c_solve(move(draft), which, listener.control)
    interrupted = listener.interrupted()
    order = np.array(answer.order, dtype=np.int64)
    return order, answer.lower_bound, FOUND_BY[<int>answer.found_by], answer.states, interrupted
