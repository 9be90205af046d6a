// Functions of the language that C's library does not have, or has for fewer types.
#pragma once

#include <math.h>

#define SIMHIP_MINMAX(A, B, R)                                        \
  static inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
  static inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
SIMHIP_MINMAX(int, int, int)
SIMHIP_MINMAX(unsigned, unsigned, unsigned) SIMHIP_MINMAX(long, long, long)
    SIMHIP_MINMAX(unsigned long, unsigned long, unsigned long) SIMHIP_MINMAX(long long, long long, long long)
        SIMHIP_MINMAX(unsigned long long, unsigned long long, unsigned long long) SIMHIP_MINMAX(int, unsigned, unsigned)
            SIMHIP_MINMAX(unsigned, int, unsigned) SIMHIP_MINMAX(long, long long, long long)
                SIMHIP_MINMAX(long long, long, long long) SIMHIP_MINMAX(int, long, long) SIMHIP_MINMAX(long, int, long)
                    SIMHIP_MINMAX(int, long long, long long) SIMHIP_MINMAX(long long, int, long long)
                        SIMHIP_MINMAX(long, unsigned long, unsigned long)
                            SIMHIP_MINMAX(unsigned long, long, unsigned long)
                                SIMHIP_MINMAX(unsigned long, unsigned long long, unsigned long long)
                                    SIMHIP_MINMAX(unsigned long long, unsigned long,
                                                  unsigned long long) static inline float min(float a, float b) {
  return fminf(a, b);
}
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return ::fmin(a, b); }
static inline double max(double a, double b) { return ::fmax(a, b); }
static inline double min(float a, double b) { return ::fmin(double(a), b); }
static inline double max(float a, double b) { return ::fmax(double(a), b); }
static inline double min(double a, float b) { return ::fmin(a, double(b)); }
static inline double max(double a, float b) { return ::fmax(a, double(b)); }

static inline float rsqrt(float v) { return 1.0f / sqrtf(v); }
static inline double rsqrt(double v) { return 1.0 / ::sqrt(v); }
static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static inline double rcbrt(double v) { return 1.0 / ::cbrt(v); }
static inline float exp10(float v) { return exp10f(v); }
static inline float sinpi(float v) { return sinf(float(M_PI) * v); }
static inline double sinpi(double v) { return ::sin(M_PI * v); }
static inline float cospi(float v) { return cosf(float(M_PI) * v); }
static inline double cospi(double v) { return ::cos(M_PI * v); }
static inline double normcdf(double v) { return 0.5 * ::erfc(-v * M_SQRT1_2); }
static inline double simhip_erfinv(double y) {
  if (y <= -1 || y >= 1) return y == 1 ? INFINITY : y == -1 ? -INFINITY : NAN;
  double w = ::log((1 - y) * (1 + y)), a = 0.147, t = 2 / (M_PI * a) + w / 2;
  double x = copysign(::sqrt(::sqrt(t * t - w / a) - t), y);
  for (int i = 0; i < 4; ++i) x -= (::erf(x) - y) / (2 / ::sqrt(M_PI) * ::exp(-x * x));
  return x;
}
static inline double erfinv(double y) { return simhip_erfinv(y); }
static inline float erfinv(float y) { return float(simhip_erfinv(y)); }
static inline double erfcinv(double y) { return simhip_erfinv(1 - y); }
static inline double normcdfinv(double p) { return M_SQRT2 * simhip_erfinv(2 * p - 1); }
static inline float __expf(float v) { return expf(v); }
static inline float __logf(float v) { return logf(v); }
static inline float __powf(float a, float b) { return powf(a, b); }
static inline float __sinf(float v) { return sinf(v); }
static inline float __cosf(float v) { return cosf(v); }
static inline float __tanf(float v) { return tanf(v); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float v) { return v < 0 ? 0 : v > 1 ? 1 : v; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
static inline float __frcp_rn(float v) { return 1 / v; }
static inline float __fsqrt_rn(float v) { return sqrtf(v); }
static inline int __float2int_rn(float v) { return int(rintf(v)); }
static inline int __float2int_rd(float v) { return int(floorf(v)); }
static inline int __mul24(int a, int b) { return a * b; }

static inline long long clock64() { return simhip_clock(); }
static inline long long wall_clock64() { return clock64(); }
#define clock() clock64()
