// Atomic operations, each a loop of compare-and-swap: other streams may run on other threads of the host.
#pragma once

#include <type_traits>

#include "bits.h"

template <class T, class F>
static inline T simhip_atomic(T* p, F f) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2, "");
  typedef typename std::conditional<sizeof(T) == 8, uint64_t,
                                    typename std::conditional<sizeof(T) == 4, uint32_t, uint16_t>::type>::type U;
  U* u = reinterpret_cast<U*>(p);
  U old = __atomic_load_n(u, __ATOMIC_RELAXED);
  for (;;) {
    U wanted = simhip_bits<U>(T(f(simhip_bits<T>(old))));
    if (__atomic_compare_exchange_n(u, &old, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return simhip_bits<T>(old);
  }
}
#define SIMHIP_ATOMICS(T)                                        \
  static inline T atomicAdd(T* p, T v) {                         \
    return simhip_atomic(p, [=](T o) { return (T)(o + v); });    \
  }                                                              \
  static inline T atomicSub(T* p, T v) {                         \
    return simhip_atomic(p, [=](T o) { return (T)(o - v); });    \
  }                                                              \
  static inline T atomicExch(T* p, T v) {                        \
    return simhip_atomic(p, [=](T) { return v; });               \
  }                                                              \
  static inline T atomicMax(T* p, T v) {                         \
    return simhip_atomic(p, [=](T o) { return o > v ? o : v; }); \
  }                                                              \
  static inline T atomicMin(T* p, T v) {                         \
    return simhip_atomic(p, [=](T o) { return o < v ? o : v; }); \
  }
#define SIMHIP_ATOMICS_INTEGER(T)                                 \
  SIMHIP_ATOMICS(T)                                               \
  static inline T atomicAnd(T* p, T v) {                          \
    return simhip_atomic(p, [=](T o) { return (T)(o & v); });     \
  }                                                               \
  static inline T atomicOr(T* p, T v) {                           \
    return simhip_atomic(p, [=](T o) { return (T)(o | v); });     \
  }                                                               \
  static inline T atomicXor(T* p, T v) {                          \
    return simhip_atomic(p, [=](T o) { return (T)(o ^ v); });     \
  }                                                               \
  static inline T atomicCAS(T* p, T c, T v) {                     \
    return simhip_atomic(p, [=](T o) { return o == c ? v : o; }); \
  }
SIMHIP_ATOMICS_INTEGER(int)
SIMHIP_ATOMICS_INTEGER(unsigned) SIMHIP_ATOMICS_INTEGER(unsigned long) SIMHIP_ATOMICS_INTEGER(unsigned long long)
    SIMHIP_ATOMICS(float)
        SIMHIP_ATOMICS(double) static inline unsigned short atomicCAS(unsigned short* p, unsigned short c,
                                                                      unsigned short v) {
  return simhip_atomic(p, [=](unsigned short o) { return o == c ? v : o; });
}
static inline unsigned atomicInc(unsigned* p, unsigned v) {
  return simhip_atomic(p, [=](unsigned o) { return o >= v ? 0 : o + 1; });
}
static inline unsigned atomicDec(unsigned* p, unsigned v) {
  return simhip_atomic(p, [=](unsigned o) { return o == 0 || o > v ? v : o - 1; });
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
