// Half precision and bfloat16: kept in 16 bits, computed in float.
#pragma once

#include "bits.h"

struct __half_raw {
  unsigned short x;
};
static inline unsigned short simhip_f2h(float f) {
  uint32_t x = simhip_bits<uint32_t>(f), sign = (x >> 16) & 0x8000u, m = x & 0x7fffffffu;
  if (m >= 0x7f800000u) return (unsigned short)(sign | (m > 0x7f800000u ? 0x7e00u : 0x7c00u));
  if (m >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (m < 0x38800000u) {  // subnormal: let the adder round
    float t = simhip_bits<float>(m) + 0.5f;
    return (unsigned short)(sign | (simhip_bits<uint32_t>(t) - 0x3f000000u));
  }
  uint32_t odd = (m >> 13) & 1;
  m += 0xc8000fffu + odd;
  return (unsigned short)(sign | (m >> 13));
}
static inline float simhip_h2f(unsigned short h) {
  uint32_t sign = uint32_t(h & 0x8000u) << 16, m = h & 0x7fffu;
  if (m >= 0x7c00u) return simhip_bits<float>(sign | 0x7f800000u | ((m & 0x3ffu) << 13));
  if (m >= 0x400u) return simhip_bits<float>(sign | ((m << 13) + 0x38000000u));
  return simhip_bits<float>(simhip_bits<uint32_t>(float(m) * 5.9604644775390625e-8f) | sign);
}
struct half {
  unsigned short bits;
  half() = default;
  half(float v) : bits(simhip_f2h(v)) {}
  half(double v) : bits(simhip_f2h(float(v))) {}
  half(int v) : bits(simhip_f2h(float(v))) {}
  half(unsigned v) : bits(simhip_f2h(float(v))) {}
  half(long v) : bits(simhip_f2h(float(v))) {}
  half(unsigned long v) : bits(simhip_f2h(float(v))) {}
  half(long long v) : bits(simhip_f2h(float(v))) {}
  half(unsigned long long v) : bits(simhip_f2h(float(v))) {}
  half(const __half_raw& r) : bits(r.x) {}
  operator float() const { return simhip_h2f(bits); }
  operator __half_raw() const { return {bits}; }
  half operator-() const {
    half r;
    r.bits = bits ^ 0x8000u;
    return r;
  }
};
typedef half __half;
static inline unsigned short __half_as_ushort(half h) { return h.bits; }
static inline half __ushort_as_half(unsigned short v) { return half(__half_raw{v}); }
static inline float __half2float(half h) { return h; }
static inline half __float2half(float f) { return half(f); }
static inline half __float2half_rn(float f) { return half(f); }
struct __hip_bfloat16 {
  unsigned short bits;
  __hip_bfloat16() = default;
  __hip_bfloat16(float v) {
    uint32_t x = simhip_bits<uint32_t>(v);
    bits = (x & 0x7fffffffu) > 0x7f800000u ? (unsigned short)((x >> 16) | 0x40u)
                                           : (unsigned short)((x + 0x7fffu + ((x >> 16) & 1)) >> 16);
  }
  operator float() const { return simhip_bits<float>(uint32_t(bits) << 16); }
};
static inline unsigned short __bfloat16_as_ushort(__hip_bfloat16 h) { return h.bits; }
static inline __hip_bfloat16 __ushort_as_bfloat16(unsigned short v) {
  __hip_bfloat16 r;
  r.bits = v;
  return r;
}
static inline bool __hisnan(__hip_bfloat16 h) { return (h.bits & 0x7fffu) > 0x7f80u; }
static inline bool __hisinf(__hip_bfloat16 h) { return (h.bits & 0x7fffu) == 0x7f80u; }
