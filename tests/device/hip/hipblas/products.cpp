// hipBLAS's products of matrices, with types in their names or as arguments. Halves are computed in float, as a
// device's matrix units do, and their scalars are floats.
#include <cstdint>
#include <vector>

#include "handle.hpp"
#include "host_blas.hpp"
#include "simhip/half.h"

namespace simhip::blas {

namespace {

enum DataType { of_float = 0, of_double = 1, of_half = 2, of_complex = 4, of_double_complex = 5 };

struct Half {
  std::uint16_t bits;
};

// A copy of a matrix in single precision, with no space between its columns.
std::vector<float> widened(const Half* at, Index rows, Index columns, Index leading) {
  std::vector<float> found(static_cast<std::size_t>(rows * columns));
  for (Index j = 0; j < columns; ++j) {
    for (Index i = 0; i < rows; ++i) {
      found[static_cast<std::size_t>(j * rows + i)] = simhip_h2f(at[j * leading + i].bits);
    }
  }
  return found;
}

void product(int op_a, int op_b, Index m, Index n, Index k, float alpha, const Half* a, Index lda, const Half* b,
             Index ldb, float beta, Half* c, Index ldc) {
  const Index rows_a = op_a == as_it_is ? m : k;
  const Index rows_b = op_b == as_it_is ? k : n;
  const std::vector<float> wide_a = widened(a, rows_a, op_a == as_it_is ? k : m, lda);
  const std::vector<float> wide_b = widened(b, rows_b, op_b == as_it_is ? n : k, ldb);
  std::vector<float> wide_c = beta != 0 ? widened(c, m, n, ldc) : std::vector<float>(static_cast<std::size_t>(m * n));
  gemm<float>(op_a, op_b, m, n, k, alpha, wide_a.data(), rows_a, wide_b.data(), rows_b, beta, wide_c.data(), m);
  for (Index j = 0; j < n; ++j) {
    for (Index i = 0; i < m; ++i) c[j * ldc + i].bits = simhip_f2h(wide_c[static_cast<std::size_t>(j * m + i)]);
  }
}

template <class T>
void product(int op_a, int op_b, Index m, Index n, Index k, T alpha, const T* a, Index lda, const T* b, Index ldb,
             T beta, T* c, Index ldc) {
  gemm<T>(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

struct Product {
  int op_a, op_b;
  Index m, n, k;
  const void *alpha, *beta;
  const void *a, *b;
  void* c;
  Index lda, ldb, ldc, stride_a, stride_b, stride_c, count;
};

template <class T, class S>
int run(Handle* handle, const Product& p) {
  const S alpha = *static_cast<const S*>(p.alpha);
  const S beta = *static_cast<const S*>(p.beta);
  const auto* a = static_cast<const T*>(p.a);
  const auto* b = static_cast<const T*>(p.b);
  auto* c = static_cast<T*>(p.c);
  Ranges ranges;
  for (const Index i : {Index{0}, p.count - 1}) {  // the first and the last: those between lie between
    if (i < 0) continue;
    ranges.push_back(factor(a + i * p.stride_a, p.op_a, p.m, p.k, p.lda));
    ranges.push_back(factor(b + i * p.stride_b, p.op_b, p.k, p.n, p.ldb));
    ranges.push_back(matrix(c + i * p.stride_c, p.m, p.n, p.ldc));
  }
  return queue(handle, "gemm", std::move(ranges), [=] {
    for (Index i = 0; i < p.count; ++i) {
      product(p.op_a, p.op_b, p.m, p.n, p.k, alpha, a + i * p.stride_a, p.lda, b + i * p.stride_b, p.ldb, beta,
              c + i * p.stride_c, p.ldc);
    }
  });
}

int run(Handle* handle, int type_a, int type_b, int type_c, const Product& p) {
  if (type_a != type_b || type_a != type_c) return not_supported;
  switch (type_a) {
    case of_float: return run<float, float>(handle, p);
    case of_double: return run<double, double>(handle, p);
    case of_half: return run<Half, float>(handle, p);
    case of_complex: return run<Complex, Complex>(handle, p);
    case of_double_complex: return run<DoubleComplex, DoubleComplex>(handle, p);
    default: return not_supported;
  }
}

}  // namespace

}  // namespace simhip::blas

using namespace simhip::blas;

#define PRODUCTS(L, T)                                                                                               \
  int hipblas##L##gemm(Handle* handle, int op_a, int op_b, int m, int n, int k, const T* alpha, const T* a, int lda, \
                       const T* b, int ldb, const T* beta, T* c, int ldc) {                                          \
    return run<T, T>(handle, {op_a, op_b, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc, 0, 0, 0, 1});                \
  }                                                                                                                  \
  int hipblas##L##gemmStridedBatched(Handle* handle, int op_a, int op_b, int m, int n, int k, const T* alpha,        \
                                     const T* a, int lda, long long step_a, const T* b, int ldb, long long step_b,   \
                                     const T* beta, T* c, int ldc, long long step_c, int count) {                    \
    const Product p{op_a, op_b, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc, step_a, step_b, step_c, count};        \
    return run<T, T>(handle, p);                                                                                     \
  }

extern "C" {
PRODUCTS(S, float)
PRODUCTS(D, double)
PRODUCTS(C, Complex)
PRODUCTS(Z, DoubleComplex)

int hipblasGemmEx(Handle* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                  int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c, int ldc, int,
                  int) {
  return run(handle, type_a, type_b, type_c, {op_a, op_b, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc, 0, 0, 0, 1});
}

int hipblasGemmStridedBatchedEx(Handle* handle, int op_a, int op_b, int m, int n, int k, const void* alpha,
                                const void* a, int type_a, int lda, long long stride_a, const void* b, int type_b,
                                int ldb, long long stride_b, const void* beta, void* c, int type_c, int ldc,
                                long long stride_c, int count, int, int) {
  return run(handle, type_a, type_b, type_c,
             {op_a, op_b, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc, stride_a, stride_b, stride_c, count});
}
}
