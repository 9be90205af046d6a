// A pool of host memory: the lanes behind a HostMemory (host_memory.hpp), with their arenas and a heap for the rest.
//
//     HostMemory ──> HostLanes ──> Lanes ──> Replay        one function each, request()
//                        └── no address ──> HostHeap ──> upstream
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "host_arena.hpp"
#include "host_heap.hpp"
#include "host_memory.hpp"
#include "lanes.hpp"

namespace stowplan::allocator {

// Widest vector loads and a cache line: more than NumPy's default promises.
constexpr Bytes kHostAlignment = 64;

// The service that HostMemory asks: lanes, the memory of their arenas, and a heap above the upstream that it is given.
//
// Its account is of what the kernel has to give: pages of arenas and of the heap that are resident, and upstream's
// blocks. Pages of an arena count from their first touch on. All that is held is what has been live at a time, and a
// slack. The pool returns the excess: first the heap's free pages, then pages of arenas in which nothing lives. Whole
// huge pages go first, as each comes back with one fault. Parts of them go where more than a slack of their own has to
// go; it doubles, up to kMostParts, each time that more parts have gone back than was ever live. A request costs
// nothing once all of the arena is in memory; before, O(its pages), and O(live log live) where pages go back.
//
// Until the first step begins, the heap may serve alone, and no request is noted: serve_by_heap().
class HostLanes {
 public:
  explicit HostLanes(const Upstream& upstream, Scope scope = Scope::thread)
      : lanes_(kHostAlignment, scope), heap_(upstream) {}

  Lanes& lanes() { return lanes_; }
  HostHeap& heap() { return heap_; }

  Upstream upstream() { return functions_of(&heap_); }
  bool owns(const void* ptr) const { return heap_.owns(ptr); }
  // Whether the heap serves alone: no request is noted.
  bool is_bypassed() const { return is_heap_only_.load(std::memory_order_relaxed) && !lanes_.has_entered(); }
  void before_request() {}
  Grant request(Bytes size, Stream stream, ThreadId thread) {
    if (is_heap_only_.load(std::memory_order_relaxed)) {
      count_heap_only();
      is_heap_only_.store(false, std::memory_order_relaxed);
    }
    if (++asked_ % kTick == 0) {
      heap_.tick();
      note_memory();
    }
    Grant grant = lanes_.request(size, stream, thread);
    if (untouched_ > 0 && grant.address != 0) touch(used_by(grant.id));
    grant.refused = grant.address == 0 && !allows(size);
    return grant;
  }
  Grant pass_over(Bytes size, ThreadId thread) {
    lanes_.pass_over(thread);
    Grant grant;
    grant.refused = !allows(size);
    return grant;
  }
  void adopt(BlockId id, std::uintptr_t address) {
    make_room(lanes_.size_of(id), lanes_.size_of(id));
    lanes_.adopt(id, address);
  }
  void cancel(BlockId id) { lanes_.cancel(id); }
  bool release(BlockId id) { return lanes_.release(id); }
  Bytes size_of(BlockId id) const { return lanes_.size_of(id); }

  // Until the first step begins, the heap serves alone; not with a limit, which it does not know. Precondition: no
  // request has come.
  void serve_by_heap() { is_heap_only_ = limit_ == 0; }
  // Those of the lanes, and what the heap has: the bytes that it keeps, and what it served alone.
  Counters counters();

  // Makes a lane's arena at least this large; false where there is no memory for it.
  bool grow(LaneNumber lane, Bytes size);
  const HostArena& memory(LaneNumber lane) const { return *memory_[lane]; }
  // The most bytes that arenas, upstream's blocks and what the heap keeps may take together; 0: as many as there are.
  // What the heap keeps goes first. What is beyond has no memory: an arena does not grow, and a request fails.
  void set_limit(Bytes limit) { limit_ = limit; }
  // Gives back what the heap keeps, and all arenas in which nothing lives. A lane whose arena goes serves no plan
  // before it grows again.
  void give_back();
  // Gives back so many bytes of arenas, of pages in which nothing lives. Arenas stay, and serve their plans.
  void give_back_idle(Bytes enough) noexcept;

 private:
  static constexpr Bytes kSlack = Bytes{1} << 20, kMostParts = Bytes{7} << 20;

  // The bytes that a block uses of its place: those that the program requested.
  Range used_by(BlockId id) const {
    const std::uintptr_t begin = lanes_.range_of(id).begin;
    return {begin, begin + static_cast<std::uintptr_t>(std::max<Bytes>(lanes_.size_of(id), 1))};
  }
  void touch(Range range) noexcept;
  void make_room(Bytes held, Bytes live) noexcept;
  // Notes what the heap keeps, and that so many bytes more of the arenas are in memory.
  void note_memory(Bytes more_in_arenas = 0) {
    untouched_ -= more_in_arenas;
    lanes_.note_memory(static_cast<Bytes>(heap_.counts().kept()), more_in_arenas);
  }

  void count_heap_only() {
    const std::uint64_t requests = heap_.requests();
    lanes_.count(Reason::heap_only, requests - std::exchange(heap_requests_, requests));
  }

  static constexpr std::uint64_t kTick = 256;  // requests; those from plans do not get to the heap

  bool allows(Bytes more) {
    const auto fits = [&] { return limit_ == 0 || lanes_.counters().reserved_bytes() + untouched_ + more <= limit_; };
    if (!fits()) {
      heap_.release();
      note_memory();
    }
    return fits();
  }

  Lanes lanes_;
  HostHeap heap_;
  Bytes limit_ = 0;
  std::uint64_t asked_ = 0;
  Bytes untouched_ = 0;                    // of all arenas
  Bytes parts_ = kSlack, parts_back_ = 0;  // of huge pages: the slack, and what has gone back since it doubled
  std::atomic<bool> is_heap_only_{false};
  std::uint64_t heap_requests_ = 0;                 // of the heap, as far as they are counted
  std::vector<std::unique_ptr<HostArena>> memory_;  // by lane; null where it has none yet
};

using HostMemory = stowplan::HostMemory<HostLanes>;

// Makes the lane's arena at least this large. False, and nothing changed, where there is no memory for it. The C
// library gives back what it keeps first.
bool host_reserve(HostMemory& memory, LaneNumber lane, Bytes size);

// For when the pool is gone, but blocks of it may live: gives back all memory in which nothing does. True if none does,
// as far as that is known: of what was not noted it never is.
bool host_retire(HostMemory& memory);

// From now on a fork holds the locks of this pool, which must never be destroyed (fork_locks.cpp). One caller at a
// time.
void hold_over_forks(HostMemory& memory);

// Gives back to the system what arenas, the heap and the C library keep for later.
void host_trim(HostMemory& memory);

// The functions of HostLanes, under the lock.
inline void host_serve_by_heap(HostMemory& memory) { memory.locked(std::mem_fn(&HostLanes::serve_by_heap)); }
inline Counters host_counters(HostMemory& memory) { return memory.locked(std::mem_fn(&HostLanes::counters)); }
inline void host_limit(HostMemory& memory, Bytes limit) {
  memory.locked([limit](HostLanes& host) { host.set_limit(limit); });
}

// Has the C library keep what is freed, for the whole process, rather than map a block of its own for each large
// request and trim its heap after each large free. Nothing where it is not glibc.
void keep_freed_memory();

}  // namespace stowplan::allocator
