// Pools in the place of an allocator that the whole process uses: NumPy's default handler, PyTorch's allocator.
//
//     client ──> functions() ──> the pool that serves now ──> ... ──> what stood there before
//                free, realloc └──> the pools that ever served: whose is the block?
//
// A client's functions are replaced once, and stay: blocks remember them, not the pool, so a pool that has served must
// be found again for each of its blocks. For the same reason neither a dispatcher nor a pool that has served is ever
// destroyed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "host_pool.hpp"

namespace stowplan::allocator {

class Dispatcher {
 public:
  // `original`: what stood there before.
  explicit Dispatcher(const Upstream& original) : original_(original) {}

  const Upstream& original() const { return original_; }
  const HostMemory* serving() const { return serving_.load(std::memory_order_acquire); }

  // A pool that is never destroyed serves from now on. One caller at a time.
  void serve(HostMemory* memory) {
    if (!has_served(memory)) {
      newest_.store(new Served{memory, newest_.load()}, std::memory_order_release);
      hold_over_forks(*memory);
    }
    serving_.store(memory, std::memory_order_release);
  }
  // Requests go to what stood there before; blocks that pools have handed out stay theirs.
  void stop_serving() { serving_.store(nullptr, std::memory_order_release); }

  bool has_served(const HostMemory* memory) const {
    for (const Served* one = newest(); one != nullptr; one = one->before) {
      if (one->memory == memory) return true;
    }
    return false;
  }

  // What the client is given. `free` takes SIZE_MAX for a size that is not known.
  Upstream functions() { return functions_of(this); }
  void* malloc(std::size_t size) {
    HostMemory* memory = serving_.load(std::memory_order_acquire);
    return memory != nullptr ? memory->malloc(size) : original_.malloc(original_.ctx, size);
  }
  void* calloc(std::size_t count, std::size_t item_size) {
    HostMemory* memory = serving_.load(std::memory_order_acquire);
    return memory != nullptr ? memory->calloc(count, item_size) : original_.calloc(original_.ctx, count, item_size);
  }
  void* realloc(void* ptr, std::size_t new_size) {
    if (ptr == nullptr) return malloc(new_size);
    for (const Served* one = newest(); one != nullptr; one = one->before) {
      if (one->memory->knows(ptr, SIZE_MAX)) return one->memory->realloc(ptr, new_size);
    }
    return original_.realloc(original_.ctx, ptr, new_size);
  }
  void free(void* ptr, std::size_t size) {
    for (const Served* one = newest(); one != nullptr; one = one->before) {
      if (one->memory->free_if_known(ptr, size)) return;
    }
    original_.free(original_.ctx, ptr, size);
  }

 private:
  struct Served {
    HostMemory* memory;
    const Served* before;
  };

  const Served* newest() const { return newest_.load(std::memory_order_acquire); }

  const Upstream original_;
  std::atomic<HostMemory*> serving_{nullptr};
  std::atomic<const Served*> newest_{nullptr};
};

}  // namespace stowplan::allocator
