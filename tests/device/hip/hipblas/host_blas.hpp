// The host's BLAS: the OpenBLAS that NumPy brings, with integers of 64 bits.
#pragma once

#include <complex>
#include <string>

#include "handle.hpp"

namespace simhip::blas {

// A function of CBLAS, such as "sgemm"; ends the process where there is none.
void* function(const std::string& name);

template <class T>
struct Type;  // its letter in BLAS, and how CBLAS passes a scalar of it

template <class T, char letter>
struct RealType {
  static constexpr char kLetter = letter;
  using Passed = T;
  static Passed pass(const T& value) { return value; }
};
template <class T, char letter>
struct ComplexType {
  static constexpr char kLetter = letter;
  using Passed = const void*;
  static Passed pass(const T& value) { return &value; }
};
template <>
struct Type<float> : RealType<float, 's'> {};
template <>
struct Type<double> : RealType<double, 'd'> {};
template <>
struct Type<Complex> : ComplexType<Complex, 'c'> {};
template <>
struct Type<DoubleComplex> : ComplexType<DoubleComplex, 'z'> {};

constexpr int kColumnMajor = 102;

// c (m, n) = alpha * op(a) (m, k) * op(b) (k, n) + beta * c
template <class T>
void gemm(int op_a, int op_b, Index m, Index n, Index k, T alpha, const T* a, Index lda, const T* b, Index ldb, T beta,
          T* c, Index ldc) {
  using Passed = typename Type<T>::Passed;
  using F = void(int, int, int, Index, Index, Index, Passed, const T*, Index, const T*, Index, Passed, T*, Index);
  static auto* const call = reinterpret_cast<F*>(function(std::string(1, Type<T>::kLetter) + "gemm"));
  if (m == 0 || n == 0) return;
  if (k == 0) {  // CBLAS refuses empty factors
    for (Index j = 0; j < n; ++j) {
      for (Index i = 0; i < m; ++i) c[j * ldc + i] = beta == T(0) ? T(0) : beta * c[j * ldc + i];
    }
    return;
  }
  call(kColumnMajor, op_a, op_b, m, n, k, Type<T>::pass(alpha), a, lda, b, ldb, Type<T>::pass(beta), c, ldc);
}

}  // namespace simhip::blas
