// A handle of hipBLAS, and how its functions queue their work with what it reads and writes.
//
// Matrices lie column by column, as in BLAS. Scalars are the host's, read when the function is called, or the device's,
// read when the work runs; results go to the same side.
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
enum Side { left = 141, right = 142 };

struct Handle {
  hipStream_t stream = nullptr;
  int pointer_mode = 0;  // 0: scalars are the host's
};

template <class T>
class Scalar {
 public:
  Scalar(const Handle* handle, const T* at)
      : of_host_(handle->pointer_mode == 0), value_(of_host_ ? *at : T()), at_(at) {}
  T operator()() const { return of_host_ ? value_ : *at_; }

 private:
  bool of_host_;
  T value_;
  const T* at_;
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

template <class T>
SimhipRange vector(const T* at, Index n, Index step) {
  return {at, n > 0 ? static_cast<std::size_t>(std::llabs(step) * (n - 1) + 1) * sizeof(T) : 0};
}

inline int queue(const Handle* handle, const char* what, Ranges ranges, std::function<void()> work) {
  const hipError_t error = simhip_enqueue_ranges(handle->stream, what, std::move(ranges), std::move(work));
  return error == hipSuccess ? success : execution_failed;
}

// The host waits for a result that goes to it.
inline int queue_result(const Handle* handle, const char* what, Ranges ranges, std::function<void()> work) {
  if (handle->pointer_mode != 0) return queue(handle, what, std::move(ranges), std::move(work));
  const hipError_t error = simhip_enqueue_wait_ranges(handle->stream, what, std::move(ranges), std::move(work));
  return error == hipSuccess ? success : execution_failed;
}

}  // namespace simhip::blas
