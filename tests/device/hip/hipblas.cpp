// hipBLAS on the OpenBLAS that NumPy brings (or any CBLAS with 64-bit integers: SIMHIP_BLAS).
#include "enqueue.hpp"
#include <dlfcn.h>
#include <link.h>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

typedef std::complex<float> C;
typedef std::complex<double> Z;
struct Handle { hipStream_t stream = nullptr; int pointer_mode = 0; };  // 0: scalars are the host's
enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3, EXECUTION_FAILED = 5, NOT_SUPPORTED = 7 };

static void* blas() {
    static void* library = [] {
        std::string path = getenv("SIMHIP_BLAS") ? getenv("SIMHIP_BLAS") : "";
        if (path.empty())
            dl_iterate_phdr([](dl_phdr_info* i, size_t, void* p) {
                if (!strstr(i->dlpi_name, "openblas64_")) return 0;
                *(std::string*)p = i->dlpi_name;
                return 1;
            }, &path);
        void* l = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW);
        if (!l) { fprintf(stderr, "simhip: no BLAS: import NumPy first\n"); abort(); }
        return l;
    }();
    return library;
}
template <class F> static F* symbol(const char* name) {
    std::string full = std::string("scipy_cblas_") + name + "64_";
    void* f = dlsym(blas(), full.c_str());
    if (!f) { full = std::string("cblas_") + name + "64_"; f = dlsym(blas(), full.c_str()); }
    if (!f) { fprintf(stderr, "simhip: no %s in BLAS\n", full.c_str()); abort(); }
    return (F*)f;
}
typedef int64_t I;
template <class T> struct scalar { typedef T by; static T pass(const T& v) { return v; } };
template <class T> struct scalar<std::complex<T>> { typedef const void* by; static const void* pass(const std::complex<T>& v) { return &v; } };
template <class T> struct letter;
template <> struct letter<float> { static constexpr char v = 's'; };
template <> struct letter<double> { static constexpr char v = 'd'; };
template <> struct letter<C> { static constexpr char v = 'c'; };
template <> struct letter<Z> { static constexpr char v = 'z'; };

template <class T> static void gemm(int ta, int tb, I m, I n, I k, T alpha, const T* a, I lda, const T* b, I ldb, T beta, T* c, I ldc) {
    if (!m || !n) return;
    typedef void F(int, int, int, I, I, I, typename scalar<T>::by, const T*, I, const T*, I, typename scalar<T>::by, T*, I);
    static F* f = symbol<F>((std::string(1, letter<T>::v) + "gemm").c_str());
    if (!k) { for (I j = 0; j < n; ++j) for (I i = 0; i < m; ++i) c[j * ldc + i] = beta == T(0) ? T(0) : T(beta * c[j * ldc + i]); return; }
    f(102, ta, tb, m, n, k, scalar<T>::pass(alpha), a, lda, b, ldb, scalar<T>::pass(beta), c, ldc);
}
template <class T> struct Scalar {                                     // read now, or when the device gets there
    bool now; T value; const T* at;
    Scalar(Handle* h, const T* p) : now(h->pointer_mode == 0), value(now ? *p : T()), at(p) {}
    T operator()() const { return now ? value : *at; }
};
static int queue(Handle* h, const char* what, std::function<void()> f) {
    return simhip_enqueue(h->stream, what, std::move(f)) ? EXECUTION_FAILED : OK;
}
// A result goes to the host, which waits for it, or to the device.
static int queue_result(Handle* h, const char* what, std::function<void()> f) {
    return (h->pointer_mode == 0 ? simhip_enqueue_wait : simhip_enqueue)(h->stream, what, std::move(f)) ? EXECUTION_FAILED : OK;
}

static inline float h2f(uint16_t h) {
    uint32_t s = uint32_t(h & 0x8000) << 16, m = h & 0x7fff, u;
    float f;
    if (m >= 0x7c00) u = s | 0x7f800000 | ((m & 0x3ff) << 13);
    else if (m >= 0x400) u = s | ((m << 13) + 0x38000000);
    else { f = float(m) * 5.9604644775390625e-8f; memcpy(&u, &f, 4); u |= s; }
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t f2h(float f) {
    uint32_t x; memcpy(&x, &f, 4);
    uint32_t sign = (x >> 16) & 0x8000u, m = x & 0x7fffffffu;
    if (m >= 0x7f800000u) return uint16_t(sign | (m > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (m >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
    if (m < 0x38800000u) { float t; memcpy(&t, &m, 4); t += 0.5f; uint32_t u; memcpy(&u, &t, 4); return uint16_t(sign | (u - 0x3f000000u)); }
    m += 0xc8000fffu + ((m >> 13) & 1);
    return uint16_t(sign | (m >> 13));
}
static void gemm_half(int ta, int tb, I m, I n, I k, float alpha, const uint16_t* a, I lda, const uint16_t* b, I ldb, float beta, uint16_t* c, I ldc) {
    I ac = ta == 111 ? k : m, bc = tb == 111 ? n : k;
    std::vector<float> fa(size_t(lda * ac)), fb(size_t(ldb * bc)), fc(size_t(ldc * n));
    I ar = ta == 111 ? m : k, br = tb == 111 ? k : n;
    for (I j = 0; j < ac; ++j) for (I i = 0; i < ar; ++i) fa[size_t(j * lda + i)] = h2f(a[j * lda + i]);
    for (I j = 0; j < bc; ++j) for (I i = 0; i < br; ++i) fb[size_t(j * ldb + i)] = h2f(b[j * ldb + i]);
    if (beta != 0) for (I j = 0; j < n; ++j) for (I i = 0; i < m; ++i) fc[size_t(j * ldc + i)] = h2f(c[j * ldc + i]);
    gemm<float>(ta, tb, m, n, k, alpha, fa.data(), lda, fb.data(), ldb, beta, fc.data(), ldc);
    for (I j = 0; j < n; ++j) for (I i = 0; i < m; ++i) c[j * ldc + i] = f2h(fc[size_t(j * ldc + i)]);
}

extern "C" {
int hipblasCreate(Handle** h) { *h = new Handle; return OK; }
int hipblasDestroy(Handle* h) { delete h; return OK; }
int hipblasSetStream(Handle* h, hipStream_t s) { h->stream = s; return OK; }
int hipblasGetStream(Handle* h, hipStream_t* s) { *s = h->stream; return OK; }
int hipblasSetPointerMode(Handle* h, int m) { h->pointer_mode = m; return OK; }
int hipblasGetPointerMode(Handle* h, int* m) { *m = h->pointer_mode; return OK; }

#define GEMMS(L, T)                                                                                                                  \
    int hipblas##L##gemm(Handle* h, int ta, int tb, int m, int n, int k, const T* al, const T* a, int lda, const T* b, int ldb,      \
                         const T* be, T* c, int ldc) {                                                                               \
        Scalar<T> alpha(h, al), beta(h, be);                                                                                         \
        return queue(h, "gemm", [=] { gemm<T>(ta, tb, m, n, k, alpha(), a, lda, b, ldb, beta(), c, ldc); });                         \
    }                                                                                                                                \
    int hipblas##L##gemmStridedBatched(Handle* h, int ta, int tb, int m, int n, int k, const T* al, const T* a, int lda, long long sa, \
                                       const T* b, int ldb, long long sb, const T* be, T* c, int ldc, long long sc, int count) {     \
        Scalar<T> alpha(h, al), beta(h, be);                                                                                         \
        return queue(h, "gemm", [=] { for (I i = 0; i < count; ++i)                                                                  \
            gemm<T>(ta, tb, m, n, k, alpha(), a + i * sa, lda, b + i * sb, ldb, beta(), c + i * sc, ldc); });                        \
    }                                                                                                                                \
    int hipblas##L##gemmBatched(Handle* h, int ta, int tb, int m, int n, int k, const T* al, const T* const* a, int lda,             \
                                const T* const* b, int ldb, const T* be, T* const* c, int ldc, int count) {                          \
        Scalar<T> alpha(h, al), beta(h, be);                                                                                         \
        return queue(h, "gemm", [=] { for (I i = 0; i < count; ++i)                                                                  \
            gemm<T>(ta, tb, m, n, k, alpha(), a[i], lda, b[i], ldb, beta(), c[i], ldc); });                                          \
    }                                                                                                                                \
    int hipblas##L##gemv(Handle* h, int t, int m, int n, const T* al, const T* a, int lda, const T* x, int ix, const T* be, T* y, int iy) { \
        Scalar<T> alpha(h, al), beta(h, be);                                                                                         \
        return queue(h, "gemv", [=] {                                                                                                \
            typedef void F(int, int, I, I, scalar<T>::by, const T*, I, const T*, I, scalar<T>::by, T*, I);                           \
            static F* f = symbol<F>((std::string(1, letter<T>::v) + "gemv").c_str());                                                \
            T u = alpha(), v = beta();                                                                                               \
            f(102, t, m, n, scalar<T>::pass(u), a, lda, x, ix, scalar<T>::pass(v), y, iy); });                                       \
    }                                                                                                                                \
    int hipblas##L##axpy(Handle* h, int n, const T* al, const T* x, int ix, T* y, int iy) {                                          \
        Scalar<T> alpha(h, al);                                                                                                      \
        return queue(h, "axpy", [=] { T u = alpha(); for (I i = 0; i < n; ++i) y[i * iy] += u * x[i * ix]; });                       \
    }                                                                                                                                \
    int hipblas##L##scal(Handle* h, int n, const T* al, T* x, int ix) {                                                              \
        Scalar<T> alpha(h, al);                                                                                                      \
        return queue(h, "scal", [=] { T u = alpha(); for (I i = 0; i < n; ++i) x[i * ix] *= u; });                                   \
    }                                                                                                                                \
    int hipblas##L##geam(Handle* h, int ta, int tb, int m, int n, const T* al, const T* a, int lda, const T* be, const T* b, int ldb, \
                         T* c, int ldc) {                                                                                            \
        Scalar<T> alpha(h, al), beta(h, be);                                                                                         \
        return queue(h, "geam", [=] { T u = alpha(), v = beta();                                                                     \
            for (I j = 0; j < n; ++j) for (I i = 0; i < m; ++i)                                                                      \
                c[j * ldc + i] = (u == T(0) ? T(0) : u * (ta == 111 ? a[j * lda + i] : a[i * lda + j])) +                            \
                                 (v == T(0) ? T(0) : v * (tb == 111 ? b[j * ldb + i] : b[i * ldb + j])); });                         \
    }                                                                                                                                \
    int hipblas##L##dgmm(Handle* h, int side, int m, int n, const T* a, int lda, const T* x, int ix, T* c, int ldc) {                \
        return queue(h, "dgmm", [=] { for (I j = 0; j < n; ++j) for (I i = 0; i < m; ++i)                                            \
            c[j * ldc + i] = a[j * lda + i] * x[(side == 141 ? i : j) * ix]; });                                                     \
    }
GEMMS(S, float) GEMMS(D, double) GEMMS(C, C) GEMMS(Z, Z)
#define DOTS(name, T, conjugate)                                                                                     \
    int hipblas##name(Handle* h, int n, const T* x, int ix, const T* y, int iy, T* out) {                            \
        return queue_result(h, "dot", [=] { T s(0); for (I i = 0; i < n; ++i) s += conjugate(x[i * ix]) * y[i * iy]; *out = s; }); \
    }
#define PLAIN(v) (v)
DOTS(Sdot, float, PLAIN) DOTS(Ddot, double, PLAIN) DOTS(Cdotu, C, PLAIN) DOTS(Zdotu, Z, PLAIN) DOTS(Cdotc, C, std::conj) DOTS(Zdotc, Z, std::conj)
#define NORMS(nrm, asum, T, R)                                                                                       \
    int hipblas##nrm(Handle* h, int n, const T* x, int ix, R* out) {                                                 \
        return queue_result(h, "nrm2", [=] { double s = 0; for (I i = 0; i < n; ++i) s += std::norm(x[i * ix]); *out = R(std::sqrt(s)); }); \
    }                                                                                                                \
    int hipblas##asum(Handle* h, int n, const T* x, int ix, R* out) {                                                \
        return queue_result(h, "asum", [=] { double s = 0; for (I i = 0; i < n; ++i) s += std::abs(std::real(x[i * ix])) + std::abs(std::imag(x[i * ix])); *out = R(s); }); \
    }
NORMS(Snrm2, Sasum, float, float) NORMS(Dnrm2, Dasum, double, double) NORMS(Scnrm2, Scasum, C, float) NORMS(Dznrm2, Dzasum, Z, double)
#define GERS(name, T, conjugate)                                                                                     \
    int hipblas##name(Handle* h, int m, int n, const T* al, const T* x, int ix, const T* y, int iy, T* a, int lda) { \
        Scalar<T> alpha(h, al);                                                                                      \
        return queue(h, "ger", [=] { T u = alpha(); for (I j = 0; j < n; ++j) { T v = u * conjugate(y[j * iy]); for (I i = 0; i < m; ++i) a[j * lda + i] += x[i * ix] * v; } }); \
    }
GERS(Sger, float, PLAIN) GERS(Dger, double, PLAIN) GERS(Cgeru, C, PLAIN) GERS(Zgeru, Z, PLAIN) GERS(Cgerc, C, std::conj) GERS(Zgerc, Z, std::conj)

// hipDataType: 0 float, 1 double, 2 half, 4 complex64, 5 complex128. The arithmetic of halves is that of floats.
static int gemm_ex(Handle* h, int ta, int tb, int m, int n, int k, const void* al, const void* a, int at, int lda, long long sa, const void* b,
                   int bt, int ldb, long long sb, const void* be, void* c, int ct, int ldc, long long sc, int count, int compute) {
    if (at != bt || at != ct) return NOT_SUPPORTED;
    if (at == 2) {
        (void)compute;                                               // CuPy passes float scalars
        Scalar<float> alpha(h, (const float*)al), beta(h, (const float*)be);
        return queue(h, "gemm", [=] { for (I i = 0; i < count; ++i)
            gemm_half(ta, tb, m, n, k, alpha(), (const uint16_t*)a + i * sa, lda, (const uint16_t*)b + i * sb, ldb, beta(), (uint16_t*)c + i * sc, ldc); });
    }
#define EX(code, T) if (at == code) { Scalar<T> alpha(h, (const T*)al), beta(h, (const T*)be); return queue(h, "gemm", [=] { for (I i = 0; i < count; ++i) \
        gemm<T>(ta, tb, m, n, k, alpha(), (const T*)a + i * sa, lda, (const T*)b + i * sb, ldb, beta(), (T*)c + i * sc, ldc); }); }
    EX(0, float) EX(1, double) EX(4, C) EX(5, Z)
    return NOT_SUPPORTED;
}
int hipblasGemmEx(Handle* h, int ta, int tb, int m, int n, int k, const void* al, const void* a, int at, int lda, const void* b, int bt, int ldb,
                  const void* be, void* c, int ct, int ldc, int compute, int) {
    return gemm_ex(h, ta, tb, m, n, k, al, a, at, lda, 0, b, bt, ldb, 0, be, c, ct, ldc, 0, 1, compute);
}
int hipblasGemmStridedBatchedEx(Handle* h, int ta, int tb, int m, int n, int k, const void* al, const void* a, int at, int lda, long long sa,
                                const void* b, int bt, int ldb, long long sb, const void* be, void* c, int ct, int ldc, long long sc, int count,
                                int compute, int) {
    return gemm_ex(h, ta, tb, m, n, k, al, a, at, lda, sa, b, bt, ldb, sb, be, c, ct, ldc, sc, count, compute);
}
}
