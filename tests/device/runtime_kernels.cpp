// Kernels for the tests of the simulated runtime, written as hiprtc's compiler makes them of CUDA's language.
#include <cstddef>
#include <cstdint>

#include "simhip_abi.h"

namespace {

template <class T>
T& argument(void** args, int i) {
  return *static_cast<T*>(args[i]);
}

// fill(float* to, long n, float value)
void fill(void** args, SimCtx*, std::uint32_t, std::uint32_t) {
  auto* to = argument<float*>(args, 0);
  for (long i = 0; i < argument<long>(args, 1); ++i) to[i] = argument<float>(args, 2);
}

// copy(const float* from, float* to, long n, long long ticks): late by so many ticks of the device's clock
void copy(void** args, SimCtx*, std::uint32_t, std::uint32_t) {
  const auto ticks = argument<long long>(args, 3);
  if (ticks != 0) {
    const long long began = simhip_clock();
    while (simhip_clock() - began < ticks) {
    }
  }
  const auto* from = argument<const float*>(args, 0);
  auto* to = argument<float*>(args, 1);
  for (long i = 0; i < argument<long>(args, 2); ++i) to[i] = from[i];
}

// wild(long at): writes to an address whose highest bit is flipped, so that the argument does not look like one
void wild(void** args, SimCtx*, std::uint32_t, std::uint32_t) {
  *reinterpret_cast<float*>(argument<std::uintptr_t>(args, 0) ^ 1ULL << 63) = 1;
}

// sum(const int* from, int* to): a block's sum, by halves
void sum(void** args, SimCtx* ctx, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = begin; i < end; ++i) {
    auto* shared = static_cast<int*>(ctx->shared);
    shared[i] = argument<const int*>(args, 0)[i];
    for (std::uint32_t half = ctx->block_dim.x / 2; half != 0; half /= 2) {
      simhip_barrier();
      if (i < half) shared[i] += shared[i + half];
    }
    if (i == 0) *argument<int*>(args, 1) = shared[0];
  }
}

constexpr std::uint32_t kFill[] = {sizeof(float*), sizeof(long), sizeof(float)};
constexpr std::uint32_t kCopy[] = {sizeof(float*), sizeof(float*), sizeof(long), sizeof(long long)};
constexpr std::uint32_t kWild[] = {sizeof(std::uintptr_t)};
constexpr std::uint32_t kSum[] = {sizeof(int*), sizeof(int*)};

}  // namespace

extern "C" {

extern const SimKernel simk_fill = {fill, 3, kFill, 0};
extern const SimKernel simk_copy = {copy, 4, kCopy, 0};
extern const SimKernel simk_wild = {wild, 1, kWild, 0};
extern const SimKernel simk_sum = {sum, 2, kSum, SIMHIP_BARRIERS};

}  // extern "C"
