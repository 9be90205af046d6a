// A pool of host memory: the lanes behind a HostMemory (host_memory.hpp), with their arenas and a heap for the rest.
//
//     HostMemory ──> HostLanes ──> AutoLanes ──> Lanes ──> Replay        one function each, request() but for
//     Lanes::route
//                        └── no address ──> HostHeap ──> upstream
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "auto_lanes.hpp"
#include "host_arena.hpp"
#include "host_heap.hpp"
#include "host_memory.hpp"

namespace stowplan::allocator {

using profiler::Upstream;

// Widest vector loads and a cache line: more than NumPy's default promises.
constexpr Bytes kHostAlignment = 64;

// When a pool that finds steps stops looking, because there is little that it could serve from plans:
//
//     | window, in vain |    back-off    |    twice the window, in vain    |          back-off          | ...
//
// A window is in vain if less than one request in kWorth of it was replayed, and no step was found in it, or this is
// the kPatience-th such window in a row. Requests of a back-off go upstream at once, and are not noted.
class BackOff {
 public:
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 16, kLongest = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kWorth = 16, kLength = 4;  // windows
  static constexpr unsigned kPatience = 8;                  // windows

  // To be called after each request: how many of the next ones to skip; mostly 0.
  std::uint64_t after_request(const Counters& counters) { return ++asked_ < window_ ? 0 : end_window(counters); }

 private:
  std::uint64_t end_window(const Counters& counters);

  std::uint64_t asked_ = 0, window_ = kWindow;
  std::uint64_t replayed_ = 0, steps_ = 0;  // before the window
  unsigned in_vain_ = 0;                    // windows in a row
};

// The service that HostMemory asks: lanes, the memory of their arenas, and a heap above the upstream that it is given.
class HostLanes {
 public:
  explicit HostLanes(const Upstream& upstream, Scope scope = Scope::thread)
      : lanes_(kHostAlignment, scope), heap_(upstream) {}

  AutoLanes& lanes() { return lanes_; }
  HostHeap& heap() { return heap_; }

  Upstream upstream() { return heap_.as_upstream(); }
  bool owns(const void* ptr) const { return heap_.owns(ptr); }
  void before_request() {}
  Grant request(Bytes size, Stream stream, ThreadId thread) {
    if (skipped_ > 0) lanes_.count(Reason::resting, std::exchange(skipped_, 0));
    if (++asked_ % kTick == 0) heap_.tick();
    Grant grant = lanes_.request(size, stream, thread);
    if (arena_is_new_ && grant.address != 0) give_way();
    grant.refused = grant.address == 0 && !allows(0);
    if (lanes_.finds_steps()) skip_count_ = back_off_.after_request(lanes_.counters());
    return grant;
  }
  std::uint64_t skip_count() {
    if (skip_count_ > 0) lanes_.stop_looking();
    skipped_ += skip_count_;
    return std::exchange(skip_count_, 0);
  }
  void adopt(BlockId id, std::uintptr_t address) { lanes_.adopt(id, address); }
  void cancel(BlockId id) { lanes_.cancel(id); }
  bool release(BlockId id) { return lanes_.release(id); }
  Bytes size_of(BlockId id) const { return lanes_.size_of(id); }

  // Makes a lane's arena at least this large; false where there is no memory for it.
  bool grow(LaneNumber lane, Bytes size);
  const HostArena& memory(LaneNumber lane) const { return *memory_[lane]; }
  // The most bytes that arenas and upstream's blocks may take together; 0: as many as there are. What is beyond has no
  // memory: an arena does not grow, and a request fails.
  void set_limit(Bytes limit) { limit_ = limit; }
  // Gives back what the heap keeps, and all arenas in which nothing lives. A lane whose arena goes serves no plan
  // before it grows again.
  void give_back();

 private:
  // An arena is used for the first time: it is resident from now on, and takes the place of what the heap keeps.
  void give_way() {
    arena_is_new_ = false;
    heap_.release();
  }

  static constexpr std::uint64_t kTick = 256;  // requests; those from plans do not get to the heap

  bool allows(Bytes more) const { return limit_ == 0 || lanes_.counters().reserved_bytes() + more <= limit_; }

  AutoLanes lanes_;
  HostHeap heap_;
  Bytes limit_ = 0;
  std::uint64_t asked_ = 0;
  bool arena_is_new_ = false;
  BackOff back_off_;
  std::uint64_t skip_count_ = 0;                    // of requests to come
  std::uint64_t skipped_ = 0;                       // not counted yet
  std::vector<std::unique_ptr<HostArena>> memory_;  // by lane; null where it has none yet
};

using HostMemory = profiler::HostMemory<HostLanes>;

// Makes the lane's arena at least this large. False, and nothing changed, where there is no memory for it. Upstream
// gives back what it keeps first: the arena takes its place.
bool host_reserve(HostMemory& memory, LaneNumber lane, Bytes size);

// For when the pool is gone, but blocks of it may live: gives back all memory in which nothing does. True if none does.
bool host_retire(HostMemory& memory);

// Gives back to the system what the heap and the C library keep for later.
void host_trim(HostMemory& memory);

// See HostLanes::set_limit.
void host_limit(HostMemory& memory, Bytes limit);

// Has the C library keep what is freed, for the whole process, rather than map a block of its own for each large
// request and trim its heap after each large free. Nothing where it is not glibc.
void keep_freed_memory();

}  // namespace stowplan::allocator
