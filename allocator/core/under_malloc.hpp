// A dispatcher under malloc itself, for large blocks.
//
//     program, libraries ──> malloc (../preload.cpp) ──> UnderMalloc ──> the dispatcher ──> ... ──> the C library
//                                  │ below kLeast                  │ while this thread holds a lock of the core
//                                  └──> the C library              └──> the C library
//
// The core's containers ask for memory as everybody does, with its locks held, and then nothing may wait for these
// locks: what is asked for comes from the C library, and what is freed is put off, linked through its own first bytes,
// to be freed by the next call that holds none. So nothing here allocates, and no lock is taken twice.
//
// Whose a block is shows in its address: all that a pool gives, or passes on, begins a page. What begins no
// page is the C library's, and nobody needs to ask; of blocks that the C library gave and that begin one, the
// dispatcher knows that they are not a pool's.
//
// Around a fork its thread holds all locks of all pools (hold_over_forks()), so that none is held in the child by a
// thread that is not there. Other libraries' handlers may ask and free meanwhile, as the core's containers do.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dispatcher.hpp"
#include "spin_lock.hpp"

namespace stowplan::allocator {

// What malloc calls; ../preload.cpp has the same.
struct MallocTable {
  Upstream functions;
  std::size_t (*size_of)(void* ctx, void* ptr);  // bytes that may be used; 0: it is the C library's
  void (*hold)();                                // before a fork
  void (*let_go)();                              // after it, in both processes
};

class UnderMalloc {
 public:
  static constexpr Bytes kPage = 4096;

  // What stood in the dispatcher's place before is the C library, whose answers begin a page, from HostHeap::kLeast
  // bytes on. Neither is ever destroyed.
  explicit UnderMalloc(Dispatcher& dispatcher)
      : dispatcher_(dispatcher), served_(dispatcher.functions()), libc_(dispatcher.original()) {}
  UnderMalloc(const UnderMalloc&) = delete;
  UnderMalloc& operator=(const UnderMalloc&) = delete;

  MallocTable table() { return {{this, malloc, calloc, realloc, free}, size_of, hold_for_fork, let_go_after_fork}; }

 private:
  struct PutOff {
    PutOff* next;
  };

  static UnderMalloc& of(void* ctx) { return *static_cast<UnderMalloc*>(ctx); }
  static bool is_inside() { return profiler::SpinLock::is_any_held(); }

  static void* malloc(void* ctx, std::size_t size) {
    UnderMalloc& self = of(ctx);
    if (is_inside()) return self.libc_.malloc(self.libc_.ctx, size);
    self.catch_up();
    return self.served_.malloc(self.served_.ctx, size);
  }
  static void* calloc(void* ctx, std::size_t count, std::size_t item_size) {
    UnderMalloc& self = of(ctx);
    if (is_inside()) return self.libc_.calloc(self.libc_.ctx, count, item_size);
    self.catch_up();
    return self.served_.calloc(self.served_.ctx, count, item_size);
  }
  static void* realloc(void* ctx, void* ptr, std::size_t new_size) {
    UnderMalloc& self = of(ctx);
    if (!is_inside()) {
      self.catch_up();
      return self.served_.realloc(self.served_.ctx, ptr, new_size);
    }
    const std::size_t held = self.dispatcher_.size_of(ptr);
    if (held == 0) return self.libc_.realloc(self.libc_.ctx, ptr, new_size);
    void* fresh = self.libc_.malloc(self.libc_.ctx, new_size);
    if (fresh == nullptr) return nullptr;
    std::memcpy(fresh, ptr, held < new_size ? held : new_size);
    self.put_off(ptr);
    return fresh;
  }
  static void free(void* ctx, void* ptr, std::size_t size) {
    UnderMalloc& self = of(ctx);
    if (is_inside()) return self.put_off(ptr);
    self.catch_up();
    self.served_.free(self.served_.ctx, ptr, size);
  }
  static std::size_t size_of(void* ctx, void* ptr) { return of(ctx).dispatcher_.size_of(ptr); }

  void put_off(void* ptr) {
    auto* block = static_cast<PutOff*>(ptr);
    block->next = put_off_.load(std::memory_order_relaxed);
    while (!put_off_.compare_exchange_weak(block->next, block, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  void catch_up() {
    if (put_off_.load(std::memory_order_relaxed) == nullptr) return;
    PutOff* block = put_off_.exchange(nullptr, std::memory_order_acquire);
    while (block != nullptr) {
      PutOff* next = block->next;
      served_.free(served_.ctx, block, SIZE_MAX);
      block = next;
    }
  }

  Dispatcher& dispatcher_;
  const Upstream served_;
  const Upstream libc_;
  std::atomic<PutOff*> put_off_{nullptr};
};

}  // namespace stowplan::allocator
