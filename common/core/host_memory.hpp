// Host memory behind NumPy's allocator interface (NEP 49), with no Python in it. Other libraries have no better one.
//
// `HostMemory<Service>` turns the four C functions of NEP 49 into requests to a Service, which answers each with an
// address or sends it upstream. One lock guards service and map; upstream is called outside it, because it is foreign
// code. NumPy calls with the GIL held, but the interface does not promise it, and an array may be dropped anywhere.
//
// Requests below `small` bytes go upstream, and nothing is noted of them: NumPy's default handler keeps a cache for
// these, which is faster than a look at anything here. A free goes upstream, too, when NumPy says that the block is
// small (as its own cache trusts it to) and the block is not in an arena. If upstream returns an address that is still
// noted, the free of its block was mistaken for a small one: the stale entry goes. So `small` may be lowered at any
// time: blocks that were small before are not noted, and go to upstream.
//
// Requests of a hidden thread go upstream unseen. So does one that there is no memory to note: a request fails only
// where upstream does.
//
// A Service is constructed from the Upstream and has
//     Upstream upstream()                                         what is asked in its place
//     bool owns(const void*)                                      memory of that upstream, for sure; without the lock
//     bool is_bypassed()                                          requests go upstream unseen; without the lock
//     void before_request()                                       without the lock
//     Grant request(Bytes size, Stream stream, ThreadId thread)   address 0: ask upstream, then adopt() or cancel()
//     void adopt(BlockId, std::uintptr_t)                         upstream's answer
//     void cancel(BlockId)                                        upstream had none
//     bool release(BlockId)                                       true: the block is upstream's, free it there
//     Bytes size_of(BlockId)
//     Grant pass_over(Bytes size, ThreadId thread)                there is no memory to note the request
// before_request() and request() may throw std::bad_alloc; nothing else throws.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "address_map.hpp"
#include "block_table.hpp"
#include "spin_lock.hpp"
#include "step_recorder.hpp"

namespace stowplan {

using ThreadId = std::uintptr_t;

// A number that no two running threads share: the address of a thread-local byte.
inline ThreadId current_thread() {
  static thread_local char here;
  return reinterpret_cast<ThreadId>(&here);
}

// Lives as long as this thread does: its number may come again.
inline const std::shared_ptr<void>& life_of_thread() {
  static thread_local const std::shared_ptr<void> life = std::make_shared<char>();
  return life;
}

// Whether no pool sees this thread's requests: a thread that makes plans is hidden from pools that serve all threads.
inline bool& is_hidden() {
  static thread_local bool hidden = false;
  return hidden;
}

struct Grant {
  std::uintptr_t address = 0;
  BlockId id = kNoBlock;
  std::uint8_t reason = 0;  // the service's word for why
  bool waits = false;       // the service has more to say before the block is used
  bool refused = false;     // upstream is not asked: the request fails
};

// NumPy's PyDataMemAllocator, field by field.
struct Upstream {
  void* ctx = nullptr;
  void* (*malloc)(void* ctx, std::size_t size) = nullptr;
  void* (*calloc)(void* ctx, std::size_t count, std::size_t item_size) = nullptr;
  void* (*realloc)(void* ctx, void* ptr, std::size_t new_size) = nullptr;
  void (*free)(void* ctx, void* ptr, std::size_t size) = nullptr;
};

template <class Service>
class HostMemory {
 public:
  // `options`: the service's, after the upstream.
  template <class... Options>
  HostMemory(const Upstream& upstream, std::size_t small, Options... options)
      : small_(small), service_(upstream, options...), upstream_(service_.upstream()) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void* malloc(std::size_t size) {
    if (is_small(size) || is_unseen()) return upstream_.malloc(upstream_.ctx, size);
    const Grant grant = request(size);
    if (grant.address != 0) return reinterpret_cast<void*>(grant.address);
    return adopt(grant.id, grant.refused ? nullptr : upstream_.malloc(upstream_.ctx, size));
  }

  void* calloc(std::size_t count, std::size_t item_size) {
    std::size_t size = 0;
    if (__builtin_mul_overflow(count, item_size, &size)) return nullptr;
    if (is_small(size) || is_unseen()) return upstream_.calloc(upstream_.ctx, count, item_size);
    const Grant grant = request(size);
    if (grant.address != 0) {
      // The arena is recycled memory, which is not zeroed.
      return std::memset(reinterpret_cast<void*>(grant.address), 0, size);
    }
    return adopt(grant.id, grant.refused ? nullptr : upstream_.calloc(upstream_.ctx, count, item_size));
  }

  // A new block, a copy, and a free: in the log and in the plan these are what they are.
  void* realloc(void* old, std::size_t new_size) {
    if (old == nullptr) return malloc(new_size);
    const std::size_t old_size = noted_size(old);
    if (old_size == kNotNoted) return upstream_.realloc(upstream_.ctx, old, new_size);  // small, and so upstream's
    void* fresh = malloc(new_size);
    if (fresh == nullptr) return nullptr;
    std::memcpy(fresh, old, old_size < new_size ? old_size : new_size);
    free(old, old_size);
    return fresh;
  }

  // The size that NumPy passes is a best guess: it settles only what is small. SIZE_MAX: it is unknown.
  void free(void* ptr, std::size_t size) {
    if (ptr != nullptr && release(ptr, size) != Whose::ours) upstream_.free(upstream_.ctx, ptr, size);
  }

  // Frees a block if it came from here, as far as that is noted anywhere; `size` as for free().
  bool free_if_known(void* ptr, std::size_t size) {
    if (ptr == nullptr) return true;
    const Whose whose = release(ptr, size);
    if (whose == Whose::unknown && !service_.owns(ptr)) return false;
    if (whose != Whose::ours) upstream_.free(upstream_.ctx, ptr, size);
    return true;
  }

  // Whether a block came from here, as far as that is noted anywhere; `size` as for free().
  bool knows(void* ptr, std::size_t size) {
    if (service_.owns(ptr)) return true;
    if (is_small(size) && !among_arenas(ptr)) return false;
    std::lock_guard<SpinLock> lock(lock_);
    return blocks_by_address_.find(reinterpret_cast<std::uintptr_t>(ptr)) != kNoBlock;
  }

  std::size_t small() const { return small_; }

  // Takes requests from `small` bytes on; whether that is fewer than before.
  bool lower_small(std::size_t small) {
    std::lock_guard<SpinLock> lock(lock_);
    if (small >= small_) return false;
    small_ = small;
    return true;
  }

  // Runs `f(service)` under the lock.
  template <class F>
  auto locked(F&& f) {
    std::lock_guard<SpinLock> lock(lock_);
    return std::forward<F>(f)(service_);
  }

  // For callers that guard the service with the same lock.
  SpinLock& lock() { return lock_; }
  Service& service() { return service_; }

  // Says where an arena is; under the lock. What lies between two of them is looked up in vain.
  void add_arena(std::uintptr_t begin, std::uintptr_t end) {
    if (end > arena_end_.load()) arena_end_.store(end, std::memory_order_release);
    if (begin < arena_begin_.load()) arena_begin_.store(begin, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kNotNoted = SIZE_MAX;

  std::size_t noted_size(void* ptr) {
    std::lock_guard<SpinLock> lock(lock_);
    const BlockId id = blocks_by_address_.find(reinterpret_cast<std::uintptr_t>(ptr));
    return id == kNoBlock ? kNotNoted : static_cast<std::size_t>(service_.size_of(id));
  }

  Grant request(std::size_t size) try {
    service_.before_request();
    std::lock_guard<SpinLock> lock(lock_);
    blocks_by_address_.reserve(unanswered_ + 1);
    const Grant grant = service_.request(static_cast<Bytes>(size), 0, current_thread());
    if (grant.address != 0) {
      blocks_by_address_.insert(grant.address, grant.id);
    } else {
      ++unanswered_;
    }
    return grant;
  } catch (const std::bad_alloc&) {
    std::lock_guard<SpinLock> lock(lock_);
    return service_.pass_over(static_cast<Bytes>(size), current_thread());
  }

  enum class Whose { unknown, ours, upstreams };

  // Takes a block off the books, and its address back where it is the service's own; `size` becomes what is noted.
  Whose release(void* ptr, std::size_t& size) {
    if (is_small(size) && !among_arenas(ptr)) return Whose::unknown;
    std::lock_guard<SpinLock> lock(lock_);
    const BlockId id = blocks_by_address_.take(reinterpret_cast<std::uintptr_t>(ptr));
    if (id == kNoBlock) return Whose::unknown;
    size = static_cast<std::size_t>(service_.size_of(id));
    return service_.release(id) ? Whose::upstreams : Whose::ours;
  }

  // Upstream's answer to a request, which is `kNoBlock` where it was passed over.
  void* adopt(BlockId id, void* ptr) {
    std::lock_guard<SpinLock> lock(lock_);
    if (id != kNoBlock) --unanswered_;
    if (ptr == nullptr) {
      if (id != kNoBlock) service_.cancel(id);
      return nullptr;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    const BlockId stale = blocks_by_address_.take(address);
    if (stale != kNoBlock) service_.release(stale);
    if (id == kNoBlock) return ptr;
    service_.adopt(id, address);
    blocks_by_address_.insert(address, id);
    return ptr;
  }

  bool is_unseen() const { return is_hidden() || service_.is_bypassed(); }

  bool is_small(std::size_t size) const { return size < small_.load(std::memory_order_relaxed); }

  bool among_arenas(void* ptr) const {
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    return arena_begin_.load(std::memory_order_acquire) <= address &&
           address < arena_end_.load(std::memory_order_acquire);
  }

  SpinLock lock_;
  std::atomic<std::size_t> small_;
  Service service_;
  const Upstream upstream_;
  AddressMap blocks_by_address_;
  std::size_t unanswered_ = 0;  // requests that upstream is being asked for: the map has room for them
  std::atomic<std::uintptr_t> arena_begin_{UINTPTR_MAX};  // there, and before the end, is all that is never upstream's
  std::atomic<std::uintptr_t> arena_end_{0};
};

// The C functions of NEP 49 that call the members of these names, of a HostMemory or the like.
template <class Memory>
Upstream functions_of(Memory* memory) {
  struct Functions {
    static Memory& of(void* ctx) { return *static_cast<Memory*>(ctx); }
    static void* malloc(void* ctx, std::size_t size) noexcept { return of(ctx).malloc(size); }
    static void* calloc(void* ctx, std::size_t count, std::size_t size) noexcept { return of(ctx).calloc(count, size); }
    static void* realloc(void* ctx, void* old, std::size_t size) noexcept { return of(ctx).realloc(old, size); }
    static void free(void* ctx, void* ptr, std::size_t size) noexcept { of(ctx).free(ptr, size); }
  };
  return {memory, Functions::malloc, Functions::calloc, Functions::realloc, Functions::free};
}

}  // namespace stowplan
