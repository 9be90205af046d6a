// The C library as the upstream of what is not NumPy: blocks aligned to a cache line, as libraries of kernels want
// them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "host_memory.hpp"

namespace stowplan {

constexpr std::size_t kLibcAlignment = 64;

inline Upstream libc_upstream() {
  struct Libc {
    static void* malloc(void*, std::size_t size) {
      void* found = nullptr;
      return posix_memalign(&found, kLibcAlignment, size) == 0 ? found : nullptr;
    }
    static void* calloc(void* ctx, std::size_t count, std::size_t item_size) {
      std::size_t size = 0;
      if (__builtin_mul_overflow(count, item_size, &size)) return nullptr;
      void* found = malloc(ctx, size);
      return found != nullptr ? std::memset(found, 0, size) : nullptr;
    }
    // As aligned as malloc's: what is moved may be less so.
    static void* realloc(void*, void* ptr, std::size_t new_size) { return std::realloc(ptr, new_size); }
    static void free(void*, void* ptr, std::size_t) { std::free(ptr); }
  };
  return {nullptr, Libc::malloc, Libc::calloc, Libc::realloc, Libc::free};
}

}  // namespace stowplan
