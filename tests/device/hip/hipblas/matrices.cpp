// hipBLAS, levels 2 and 3: products with matrices, and their sums.
#include <complex>

#include "handle.hpp"
#include "host_blas.hpp"

namespace simhip::blas {

namespace {

template <class T>
int product(Handle* handle, int op_a, int op_b, Index m, Index n, Index k, const T* alpha_at, const T* a, Index lda,
            Index stride_a, const T* b, Index ldb, Index stride_b, const T* beta_at, T* c, Index ldc, Index stride_c,
            Index count) {
  const Scalar<T> alpha(handle, alpha_at);
  const Scalar<T> beta(handle, beta_at);
  Ranges ranges;
  for (const Index i : {Index{0}, count - 1}) {  // the first and the last: those between lie between
    if (i < 0) continue;
    ranges.push_back(factor(a + i * stride_a, op_a, m, k, lda));
    ranges.push_back(factor(b + i * stride_b, op_b, k, n, ldb));
    ranges.push_back(matrix(c + i * stride_c, m, n, ldc));
  }
  return queue(handle, "gemm", std::move(ranges), [=] {
    for (Index i = 0; i < count; ++i) {
      gemm<T>(op_a, op_b, m, n, k, alpha(), a + i * stride_a, lda, b + i * stride_b, ldb, beta(), c + i * stride_c,
              ldc);
    }
  });
}

template <class T>
int products(Handle* handle, int op_a, int op_b, Index m, Index n, Index k, const T* alpha_at, const T* const* a,
             Index lda, const T* const* b, Index ldb, const T* beta_at, T* const* c, Index ldc, Index count) {
  const Scalar<T> alpha(handle, alpha_at);
  const Scalar<T> beta(handle, beta_at);
  return queue(handle, "gemm", {vector(a, count, 1), vector(b, count, 1), vector(c, count, 1)}, [=] {
    for (Index i = 0; i < count; ++i) {
      gemm<T>(op_a, op_b, m, n, k, alpha(), a[i], lda, b[i], ldb, beta(), c[i], ldc);
    }
  });
}

template <class T>
int product_with_vector(Handle* handle, int op, Index m, Index n, const T* alpha_at, const T* a, Index lda, const T* x,
                        Index step_x, const T* beta_at, T* y, Index step_y) {
  const Scalar<T> alpha(handle, alpha_at);
  const Scalar<T> beta(handle, beta_at);
  const Index in = op == as_it_is ? n : m;
  const Index out = op == as_it_is ? m : n;
  return queue(handle, "gemv", {matrix(a, m, n, lda), vector(x, in, step_x), vector(y, out, step_y)},
               [=] { gemv<T>(op, m, n, alpha(), a, lda, x, step_x, beta(), y, step_y); });
}

// a += alpha * x * second(y)'
template <class T, class F>
int outer(Handle* handle, Index m, Index n, const T* alpha_at, const T* x, Index step_x, const T* y, Index step_y, T* a,
          Index lda, F second) {
  const Scalar<T> alpha(handle, alpha_at);
  return queue(handle, "ger", {vector(x, m, step_x), vector(y, n, step_y), matrix(a, m, n, lda)}, [=] {
    for (Index j = 0; j < n; ++j) {
      const T factor = alpha() * second(y[j * step_y]);
      for (Index i = 0; i < m; ++i) a[j * lda + i] += x[i * step_x] * factor;
    }
  });
}

template <class T>
T element(const T* at, int operation, Index leading, Index i, Index j) {
  if (operation == as_it_is) return at[j * leading + i];
  const T value = at[i * leading + j];
  if constexpr (std::is_floating_point_v<T>) {
    return value;
  } else {
    return operation == conjugate_transposed ? std::conj(value) : value;
  }
}

// c = alpha * op(a) + beta * op(b); a factor of 0 leaves its matrix unread.
template <class T>
int sum(Handle* handle, int op_a, int op_b, Index m, Index n, const T* alpha_at, const T* a, Index lda,
        const T* beta_at, const T* b, Index ldb, T* c, Index ldc) {
  const Scalar<T> alpha(handle, alpha_at);
  const Scalar<T> beta(handle, beta_at);
  return queue(handle, "geam", {matrix(c, m, n, ldc)}, [=] {
    const T of_a = alpha();
    const T of_b = beta();
    for (Index j = 0; j < n; ++j) {
      for (Index i = 0; i < m; ++i) {
        const T first = of_a == T(0) ? T(0) : of_a * element(a, op_a, lda, i, j);
        c[j * ldc + i] = first + (of_b == T(0) ? T(0) : of_b * element(b, op_b, ldb, i, j));
      }
    }
  });
}

// c = diag(x) * a, or a * diag(x)
template <class T>
int scaled(Handle* handle, int side, Index m, Index n, const T* a, Index lda, const T* x, Index step, T* c, Index ldc) {
  const Ranges ranges{matrix(a, m, n, lda), vector(x, side == left ? m : n, step), matrix(c, m, n, ldc)};
  return queue(handle, "dgmm", ranges, [=] {
    for (Index j = 0; j < n; ++j) {
      for (Index i = 0; i < m; ++i) c[j * ldc + i] = a[j * lda + i] * x[(side == left ? i : j) * step];
    }
  });
}

}  // namespace

}  // namespace simhip::blas

using namespace simhip::blas;

#define MATRICES(L, T)                                                                                                \
  int hipblas##L##gemm(Handle* h, int op_a, int op_b, int m, int n, int k, const T* alpha, const T* a, int lda,       \
                       const T* b, int ldb, const T* beta, T* c, int ldc) {                                           \
    return product(h, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);                          \
  }                                                                                                                   \
  int hipblas##L##gemmStridedBatched(Handle* h, int op_a, int op_b, int m, int n, int k, const T* alpha, const T* a,  \
                                     int lda, long long stride_a, const T* b, int ldb, long long stride_b,            \
                                     const T* beta, T* c, int ldc, long long stride_c, int count) {                   \
    return product<T>(h, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c,      \
                      count);                                                                                         \
  }                                                                                                                   \
  int hipblas##L##gemmBatched(Handle* h, int op_a, int op_b, int m, int n, int k, const T* alpha, const T* const* a,  \
                              int lda, const T* const* b, int ldb, const T* beta, T* const* c, int ldc, int count) {  \
    return products(h, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count);                              \
  }                                                                                                                   \
  int hipblas##L##gemv(Handle* h, int op, int m, int n, const T* alpha, const T* a, int lda, const T* x, int step_x,  \
                       const T* beta, T* y, int step_y) {                                                             \
    return product_with_vector(h, op, m, n, alpha, a, lda, x, step_x, beta, y, step_y);                               \
  }                                                                                                                   \
  int hipblas##L##geam(Handle* h, int op_a, int op_b, int m, int n, const T* alpha, const T* a, int lda,              \
                       const T* beta, const T* b, int ldb, T* c, int ldc) {                                           \
    return sum(h, op_a, op_b, m, n, alpha, a, lda, beta, b, ldb, c, ldc);                                             \
  }                                                                                                                   \
  int hipblas##L##dgmm(Handle* h, int side, int m, int n, const T* a, int lda, const T* x, int step, T* c, int ldc) { \
    return scaled(h, side, m, n, a, lda, x, step, c, ldc);                                                            \
  }
#define OUTER(name, T, second)                                                                                     \
  int hipblas##name(Handle* h, int m, int n, const T* alpha, const T* x, int step_x, const T* y, int step_y, T* a, \
                    int lda) {                                                                                     \
    return outer(h, m, n, alpha, x, step_x, y, step_y, a, lda, [](const T& value) { return second(value); });      \
  }

extern "C" {
MATRICES(S, float)
MATRICES(D, double)
MATRICES(C, Complex)
MATRICES(Z, DoubleComplex)
OUTER(Sger, float, )
OUTER(Dger, double, )
OUTER(Cgeru, Complex, )
OUTER(Zgeru, DoubleComplex, )
OUTER(Cgerc, Complex, std::conj)
OUTER(Zgerc, DoubleComplex, std::conj)
}
