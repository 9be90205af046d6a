// How the runtime calls a kernel: a function for a block's threads [begin, end), and the sizes of the arguments.
#pragma once

#include <type_traits>
#include <utility>

#include "../simhip_abi.h"

namespace simhip {
template <class... A>
struct Args {
  static constexpr uint32_t count = sizeof...(A);
  static constexpr uint32_t sizes[sizeof...(A) + 1] = {uint32_t(sizeof(A))..., 0};
};
template <auto F, class S>
struct Caller;
template <auto F, class R, class... A>
struct Caller<F, R (*)(A...)> : Args<std::remove_reference_t<A>...> {
  template <size_t... I>
  static inline void loop(void** args, SimCtx* c, uint32_t begin, uint32_t end, std::index_sequence<I...>) {
    (void)args;
    uint32_t x = begin % c->block_dim.x, y = begin / c->block_dim.x % c->block_dim.y,
             z = begin / c->block_dim.x / c->block_dim.y;
    for (uint32_t t = begin; t < end; ++t) {
      c->thread_idx = {x, y, z};
      c->tid = t;
      F(*reinterpret_cast<std::remove_reference_t<A>*>(args[I])...);
      if (++x == c->block_dim.x) {
        x = 0;
        if (++y == c->block_dim.y) {
          y = 0;
          ++z;
        }
      }
    }
  }
  static void run(void** args, SimCtx* c, uint32_t begin, uint32_t end) {
    loop(args, c, begin, end, std::index_sequence_for<A...>{});
  }
};
template <auto F>
constexpr SimKernel kernel(uint32_t flags) {
  typedef Caller<F, decltype(F)> C;
  return {&C::run, C::count, C::sizes, flags};
}
}  // namespace simhip
#define SIMHIP_KERNEL(symbol, function, flags)                              \
  extern "C" __attribute__((visibility("default"), used)) SimKernel symbol; \
  SimKernel symbol = simhip::kernel<(function)>(flags);
#define SIMHIP_GLOBAL(symbol, pointer)                                        \
  extern "C" __attribute__((visibility("default"), used)) const void* symbol; \
  const void* symbol = (const void*)(pointer);
