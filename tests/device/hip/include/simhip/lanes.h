// Barriers, and what the lanes of a wave show each other.
#pragma once

#include <string.h>

#include "../simhip_abi.h"

#define __syncthreads() simhip_barrier()
static inline unsigned __lane_id() { return simhip_ctx->tid % SIMHIP_LANES; }
template <class T>
static inline T simhip_shfl(T v, int source, int width) {
  int lane = int(simhip_ctx->tid % SIMHIP_LANES), base = lane / width * width;
  bool valid = source >= base && source < base + width;
  uint64_t raw = 0;
  static_assert(sizeof(T) <= 8, "");
  memcpy(&raw, &v, sizeof v);
  raw = simhip_shuffle(raw, uint32_t(valid ? source : lane), valid);
  memcpy(&v, &raw, sizeof v);
  return v;
}
template <class T>
static inline T __shfl(T v, int source, int width = SIMHIP_LANES) {
  int lane = int(simhip_ctx->tid % SIMHIP_LANES);
  return simhip_shfl(v, lane / width * width + (source & (width - 1)), width);
}
template <class T>
static inline T __shfl_up(T v, unsigned d, int width = SIMHIP_LANES) {
  return simhip_shfl(v, int(simhip_ctx->tid % SIMHIP_LANES) - int(d), width);
}
template <class T>
static inline T __shfl_down(T v, unsigned d, int width = SIMHIP_LANES) {
  return simhip_shfl(v, int(simhip_ctx->tid % SIMHIP_LANES) + int(d), width);
}
template <class T>
static inline T __shfl_xor(T v, int m, int width = SIMHIP_LANES) {
  return simhip_shfl(v, int(simhip_ctx->tid % SIMHIP_LANES) ^ m, width);
}
template <class M, class T>
static inline T __shfl_sync(M, T v, int s, int w = SIMHIP_LANES) {
  return __shfl(v, s, w);
}
template <class M, class T>
static inline T __shfl_up_sync(M, T v, unsigned d, int w = SIMHIP_LANES) {
  return __shfl_up(v, d, w);
}
template <class M, class T>
static inline T __shfl_down_sync(M, T v, unsigned d, int w = SIMHIP_LANES) {
  return __shfl_down(v, d, w);
}
template <class M, class T>
static inline T __shfl_xor_sync(M, T v, int m, int w = SIMHIP_LANES) {
  return __shfl_xor(v, m, w);
}
// CuPy defines __syncwarp() as a fence: on AMD's devices a wave runs in lock-step. Here it has to be a barrier.
#define INCLUDE_GUARD_CUPY_HIP_WORKAROUND_H
static inline void simhip_syncwarp() { simhip_warp_barrier(); }
#define __syncwarp(...) simhip_syncwarp()
