// hipBLAS, level 1: vectors.
#include <cmath>

#include "handle.hpp"

namespace simhip::blas {

namespace {

template <class T>
int axpy(Handle* handle, int n, const T* alpha_at, const T* x, int step_x, T* y, int step_y) {
  const Scalar<T> alpha(handle, alpha_at);
  return queue(handle, "axpy", {vector(x, n, step_x), vector(y, n, step_y)}, [=] {
    const T factor = alpha();
    for (Index i = 0; i < n; ++i) y[i * step_y] += factor * x[i * step_x];
  });
}

template <class T>
int scal(Handle* handle, int n, const T* alpha_at, T* x, int step) {
  const Scalar<T> alpha(handle, alpha_at);
  return queue(handle, "scal", {vector(x, n, step)}, [=] {
    const T factor = alpha();
    for (Index i = 0; i < n; ++i) x[i * step] *= factor;
  });
}

template <class T, class F>
int dot(Handle* handle, int n, const T* x, int step_x, const T* y, int step_y, T* out, F first) {
  return queue_result(handle, "dot", {vector(x, n, step_x), vector(y, n, step_y)}, [=] {
    T sum(0);
    for (Index i = 0; i < n; ++i) sum += first(x[i * step_x]) * y[i * step_y];
    *out = sum;
  });
}

template <class T, class R>
int nrm2(Handle* handle, int n, const T* x, int step, R* out) {
  return queue_result(handle, "nrm2", {vector(x, n, step)}, [=] {
    double sum = 0;
    for (Index i = 0; i < n; ++i) sum += std::norm(x[i * step]);
    *out = static_cast<R>(std::sqrt(sum));
  });
}

template <class T>
double size_of(const T& value) {
  return std::abs(std::real(value)) + std::abs(std::imag(value));
}

template <class T, class R>
int asum(Handle* handle, int n, const T* x, int step, R* out) {
  return queue_result(handle, "asum", {vector(x, n, step)}, [=] {
    double sum = 0;
    for (Index i = 0; i < n; ++i) sum += size_of(x[i * step]);
    *out = static_cast<R>(sum);
  });
}

// The number, from 1, of the first element that `better` prefers to all before it.
template <class T, class F>
int best(Handle* handle, int n, const T* x, int step, int* out, F better) {
  return queue_result(handle, "index of an extreme", {vector(x, n, step)}, [=] {
    Index found = 0;
    for (Index i = 1; i < n; ++i) {
      if (better(size_of(x[i * step]), size_of(x[found * step]))) found = i;
    }
    *out = n > 0 ? static_cast<int>(found) + 1 : 0;
  });
}

}  // namespace

}  // namespace simhip::blas

using namespace simhip::blas;

#define VECTORS(L, T)                                                                                \
  int hipblas##L##axpy(Handle* h, int n, const T* alpha, const T* x, int step_x, T* y, int step_y) { \
    return axpy(h, n, alpha, x, step_x, y, step_y);                                                  \
  }                                                                                                  \
  int hipblas##L##scal(Handle* h, int n, const T* alpha, T* x, int step) { return scal(h, n, alpha, x, step); }
#define INDICES(name, T)                                                       \
  int hipblas##name##amax(Handle* h, int n, const T* x, int step, int* out) {  \
    return best(h, n, x, step, out, [](double a, double b) { return a > b; }); \
  }                                                                            \
  int hipblas##name##amin(Handle* h, int n, const T* x, int step, int* out) {  \
    return best(h, n, x, step, out, [](double a, double b) { return a < b; }); \
  }
#define NORMS(norm, sum, T, R)                                                                           \
  int hipblas##norm(Handle* h, int n, const T* x, int step, R* out) { return nrm2(h, n, x, step, out); } \
  int hipblas##sum(Handle* h, int n, const T* x, int step, R* out) { return asum(h, n, x, step, out); }
#define DOT(name, T, first)                                                                     \
  int hipblas##name(Handle* h, int n, const T* x, int step_x, const T* y, int step_y, T* out) { \
    return dot(h, n, x, step_x, y, step_y, out, [](const T& value) { return first(value); });   \
  }

extern "C" {
VECTORS(S, float)
VECTORS(D, double)
VECTORS(C, Complex)
VECTORS(Z, DoubleComplex)
INDICES(Is, float)
INDICES(Id, double)
INDICES(Ic, Complex)
INDICES(Iz, DoubleComplex)
NORMS(Snrm2, Sasum, float, float)
NORMS(Dnrm2, Dasum, double, double)
NORMS(Scnrm2, Scasum, Complex, float)
NORMS(Dznrm2, Dzasum, DoubleComplex, double)
DOT(Sdot, float, )
DOT(Ddot, double, )
DOT(Cdotu, Complex, )
DOT(Zdotu, DoubleComplex, )
DOT(Cdotc, Complex, std::conj)
DOT(Zdotc, DoubleComplex, std::conj)
}
