// The language's vectors: float4, make_int2 and the like, aligned as on a device.
#pragma once

#define SIMHIP_VECTOR(T, N)                                                       \
  struct N##1 { T x; };                                                           \
  struct alignas(2 * sizeof(T)) N##2 { T x, y; };                                 \
  struct N##3 { T x, y, z; };                                                     \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; }; \
  static inline N##1 make_##N##1(T x) { return {x}; }                             \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                     \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }             \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIMHIP_VECTOR(signed char, char)
SIMHIP_VECTOR(unsigned char, uchar) SIMHIP_VECTOR(short, short) SIMHIP_VECTOR(unsigned short, ushort)
    SIMHIP_VECTOR(int, int) SIMHIP_VECTOR(unsigned, uint) SIMHIP_VECTOR(long, long) SIMHIP_VECTOR(unsigned long, ulong)
        SIMHIP_VECTOR(long long, longlong) SIMHIP_VECTOR(unsigned long long, ulonglong) SIMHIP_VECTOR(float, float)
            SIMHIP_VECTOR(double, double)
