// Blocks of a host pool for the stress programs: every one carries a byte pattern that is checked when it dies.
#pragma once

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "host_pool.hpp"
#include "stress.hpp"

namespace stress {

using namespace stowplan::allocator;

inline void* up_malloc(void*, std::size_t size) { return std::malloc(size); }
inline void* up_calloc(void*, std::size_t n, std::size_t size) { return std::calloc(n, size); }
inline void* up_realloc(void*, void* p, std::size_t size) { return std::realloc(p, size); }
inline void up_free(void*, void* p, std::size_t) { std::free(p); }
inline constexpr stowplan::Upstream kUpstream{nullptr, up_malloc, up_calloc, up_realloc, up_free};

struct Held {
  unsigned char* ptr;
  std::size_t size;
  unsigned char pattern;
};

inline Held allocate(HostMemory& memory, std::size_t size, std::mt19937& random) {
  const auto pattern = static_cast<unsigned char>(random());
  auto* ptr = static_cast<unsigned char*>(random() % 8 == 0 ? memory.calloc(1, size) : memory.malloc(size));
  if (ptr == nullptr) fail("out of memory");
  std::memset(ptr, pattern, size);
  return {ptr, size, pattern};
}

inline void drop(HostMemory& memory, const Held& block) {
  for (std::size_t i = 0; i < block.size; ++i) {
    if (block.ptr[i] != block.pattern) fail("a block's bytes were overwritten while it was alive");
  }
  memory.free(block.ptr, block.size);
}

// Blocks on their way from one thread to another.
class Exchange {
 public:
  void put(const Held& block) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_back(block);
  }
  bool take(Held& block, std::mt19937& random) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.empty()) return false;
    std::swap(blocks_[random() % blocks_.size()], blocks_.back());
    block = blocks_.back();
    blocks_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Held> blocks_;
};

// Adds what is due before each request, and behind the last one, to a plan that has all else.
inline void finish_plan(Plan& plan, const std::vector<std::vector<RequestNumber>>& due, Bytes arena_bytes) {
  for (const auto& numbers : due) {
    plan.due_begin.push_back(static_cast<std::uint32_t>(plan.due.size()));
    plan.due.insert(plan.due.end(), numbers.begin(), numbers.end());
  }
  plan.due_begin.push_back(static_cast<std::uint32_t>(plan.due.size()));
  plan.arena_bytes = arena_bytes;
  plan.derive();
}

}  // namespace stress
