// Numbers as bits: what a compiler for a device has built in.
#pragma once

#include <stdint.h>
#include <string.h>

template <class To, class From>
static inline To simhip_bits(From v) {
  static_assert(sizeof(To) == sizeof(From), "");
  To r;
  memcpy(&r, &v, sizeof r);
  return r;
}
static inline int __float_as_int(float v) { return simhip_bits<int>(v); }
static inline unsigned __float_as_uint(float v) { return simhip_bits<unsigned>(v); }
static inline float __int_as_float(int v) { return simhip_bits<float>(v); }
static inline float __uint_as_float(unsigned v) { return simhip_bits<float>(v); }
static inline long long __double_as_longlong(double v) { return simhip_bits<long long>(v); }
static inline double __longlong_as_double(long long v) { return simhip_bits<double>(v); }
static inline int __double2hiint(double v) { return int(uint64_t(simhip_bits<long long>(v)) >> 32); }
static inline int __double2loint(double v) { return int(simhip_bits<long long>(v)); }
static inline double __hiloint2double(int hi, int lo) {
  return simhip_bits<double>((long long)((uint64_t(uint32_t(hi)) << 32) | uint32_t(lo)));
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) {
    r = (r << 1) | (v & 1);
    v >>= 1;
  }
  return r;
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t)a * b >> 32); }
template <class T>
static inline T __ldg(const T* p) {
  return *p;
}
