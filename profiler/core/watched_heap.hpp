// The C library's heap as a table of C functions, whose watcher is told of every block. No Python in it.
//
// The table stays for the life of the process, watched or not: what was had from it may be freed at any time, by any
// thread. One watches at a time. A block's end is told before its address can be another block's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>

#include "libc_upstream.hpp"
#include "told_blocks.hpp"

namespace stowplan::profiler {

class WatchedHeap {
 public:
  static const Upstream* functions() {
    static const Upstream table{nullptr, malloc, calloc, realloc, free};
    return &table;
  }

  // False where there is a watcher already.
  static bool watch(ToldBlocks* blocks) {
    ToldBlocks* none = nullptr;
    return watcher_.compare_exchange_strong(none, blocks);
  }

  // Returns once no thread is telling any more: the watcher may go. Not to be called where such a thread may wait for
  // what the caller holds.
  static void leave() {
    watcher_ = nullptr;
    while (telling_ != 0) std::this_thread::yield();
  }

  // A forked child is not watched: the locks are as the parent's threads had them.
  static void leave_in_child() {
    watcher_ = nullptr;
    telling_ = 0;
  }

 private:
  // Runs `f(blocks)` if there is a watcher. A watcher that is read here does not go before. Where there is no memory
  // for the log, the block is not in it.
  template <class F>
  static void tell(F&& f) noexcept {
    if (watcher_.load(std::memory_order_relaxed) == nullptr) return;
    ++telling_;
    try {
      if (ToldBlocks* blocks = watcher_) f(*blocks);
    } catch (const std::bad_alloc&) {
    }
    --telling_;
  }

  static void* told(void* ptr, std::size_t size) {
    if (ptr != nullptr) {
      tell([&](ToldBlocks& blocks) {
        blocks.allocated(reinterpret_cast<std::uintptr_t>(ptr), static_cast<Bytes>(size), 0);
      });
    }
    return ptr;
  }

  static void* malloc(void*, std::size_t size) { return told(heap().malloc(nullptr, size), size); }
  static void* calloc(void*, std::size_t count, std::size_t item_size) {
    return told(heap().calloc(nullptr, count, item_size), count * item_size);
  }
  static void* realloc(void*, void* ptr, std::size_t new_size) {
    untold(ptr);
    return told(heap().realloc(nullptr, ptr, new_size), new_size);
  }
  static void free(void*, void* ptr, std::size_t size) {
    untold(ptr);
    heap().free(nullptr, ptr, size);
  }
  static void untold(void* ptr) {
    tell([&](ToldBlocks& blocks) { blocks.freed(reinterpret_cast<std::uintptr_t>(ptr)); });
  }

  static const Upstream& heap() {
    static const Upstream table = libc_upstream();
    return table;
  }

  inline static std::atomic<ToldBlocks*> watcher_{nullptr};
  inline static std::atomic<int> telling_{0};
};

}  // namespace stowplan::profiler
