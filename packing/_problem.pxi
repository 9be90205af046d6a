# What every binding of a packing core needs: the solvers' view of a problem.

include "_column.pxi"


cdef extern from "packing/core/problem.hpp" namespace "stowplan::packing" nogil:
    cdef struct CProblem "stowplan::packing::Problem":
        size_t n
        const int64_t* size
        const int64_t* start
        const int64_t* end
        const int64_t* alignment
        const int64_t* fixed
        const int64_t* first_piece
        const int64_t* piece_start
        const int64_t* piece_end
        const int64_t* piece_lower
        const int64_t* piece_upper


cdef class Columns:
    """Keeps a problem's arrays alive while C++ looks at them."""

    cdef CProblem view
    cdef object problem
    cdef object pieces
    cdef object fixed

    def __cinit__(self, object problem, object fixed=None):
        self.problem = problem
        self.pieces = problem.pieces()
        self.fixed = problem.fixed if fixed is None else fixed
        if len(self.fixed) != len(problem):
            raise ValueError(f"there are {len(self.fixed)} fixed offsets; expected {len(problem)}")
        self.view.n = len(problem)
        self.view.size = address(problem.size)
        self.view.start = address(problem.start)
        self.view.end = address(problem.end)
        self.view.alignment = address(problem.alignment)
        self.view.fixed = address(self.fixed)
        self.view.first_piece = address(self.pieces.first)
        self.view.piece_start = address(self.pieces.start)
        self.view.piece_end = address(self.pieces.end)
        self.view.piece_lower = address(self.pieces.lower)
        self.view.piece_upper = address(self.pieces.upper)
