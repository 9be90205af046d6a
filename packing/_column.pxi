# What every binding needs that hands columns to C++.

from libc.stdint cimport int64_t

ctypedef const int64_t[::1] Column


cdef const int64_t* address(Column column) noexcept nogil:
    return &column[0] if column.shape[0] else NULL
