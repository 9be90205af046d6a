// A handle of hipBLAS, and how its functions queue their work with what it reads and writes.
//
// Matrices lie column by column, as in BLAS. Scalars are the host's, read when the function is called.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "enqueue.hpp"

namespace simhip::blas {

using Index = std::int64_t;
using Complex = std::complex<float>;
using DoubleComplex = std::complex<double>;

enum Status { success = 0, execution_failed = 5, not_supported = 7 };
enum Operation { as_it_is = 111, transposed = 112, conjugate_transposed = 113 };

struct Handle {
  hipStream_t stream = nullptr;
};

using Ranges = std::vector<SimhipRange>;

template <class T>
SimhipRange matrix(const T* at, Index rows, Index columns, Index leading) {
  const Index last = rows > 0 && columns > 0 ? leading * (columns - 1) + rows : 0;
  return {at, static_cast<std::size_t>(last) * sizeof(T)};
}

// A matrix that goes into a product as `rows` times `columns`, whichever way it lies.
template <class T>
SimhipRange factor(const T* at, int operation, Index rows, Index columns, Index leading) {
  return operation == as_it_is ? matrix(at, rows, columns, leading) : matrix(at, columns, rows, leading);
}

inline int queue(const Handle* handle, const char* what, Ranges ranges, std::function<void()> work) {
  const hipError_t error = simhip_enqueue_ranges(handle->stream, what, std::move(ranges), std::move(work));
  return error == hipSuccess ? success : execution_failed;
}

}  // namespace simhip::blas
