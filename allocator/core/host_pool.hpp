// The lanes as the service of a HostMemory, and what needs both: the arenas' memory, and the heap of what is not
// planned.
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
//     | window, in vain |      rest      |    twice the window, in vain    |            rest            | ...
//
// A window is in vain if less than one request in kWorth of it was replayed, and no step was found in it, or this is
// the kPatience-th such window in a row. Requests of a rest are upstream's at once, and nobody notes them.
class Rests {
 public:
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 16, kLongest = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kWorth = 16, kRest = 4;
  static constexpr unsigned kPatience = 8;

  // To be called after each request: how many of the next ones nobody is to look at; mostly 0.
  std::uint64_t after_request(const Counters& counters) { return ++asked_ < window_ ? 0 : end_window(counters); }

 private:
  std::uint64_t end_window(const Counters& counters);

  std::uint64_t asked_ = 0, window_ = kWindow;
  std::uint64_t replayed_ = 0, steps_ = 0;  // before the window
  unsigned in_vain_ = 0;                    // windows in a row
};

// Lanes that own their arenas, and a heap above the upstream that they are given.
class HostLanes : public AutoLanes {
 public:
  explicit HostLanes(const Upstream& upstream, Scope scope = Scope::thread)
      : AutoLanes(kHostAlignment, scope), heap_(upstream) {}

  // The service that HostMemory asks.
  Upstream upstream() { return heap_.as_upstream(); }
  Grant request(Bytes size, Stream stream, ThreadId thread) {
    if (rested_ > 0) count(Reason::resting, std::exchange(rested_, 0));
    if (++asked_ % kTick == 0) heap_.tick();
    Grant grant = AutoLanes::request(size, stream, thread);
    if (arena_is_new_ && grant.address != 0) give_way();
    grant.refused = grant.address == 0 && !allows(0);
    if (finds_steps()) leaves_ = rests_.after_request(counters());
    return grant;
  }
  std::uint64_t leaves() {
    if (leaves_ > 0) stop_looking();
    rested_ += leaves_;
    return std::exchange(leaves_, 0);
  }
  bool owns(const void* ptr) const { return heap_.owns(ptr); }
  HostHeap& heap() { return heap_; }
  bool grow(LaneNumber lane, Bytes size);
  // The most bytes that arenas and upstream's blocks may take together; 0: as many as there are. What is beyond has no
  // memory: an arena does not grow, and a request fails.
  void set_limit(Bytes limit) { limit_ = limit; }
  const HostArena& memory(LaneNumber lane) const { return *memory_[lane]; }
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

  bool allows(Bytes more) const { return limit_ == 0 || counters().reserved_bytes() + more <= limit_; }

  HostHeap heap_;
  Bytes limit_ = 0;
  std::uint64_t asked_ = 0;
  bool arena_is_new_ = false;
  Rests rests_;
  std::uint64_t leaves_ = 0;
  std::uint64_t rested_ = 0;                        // not counted yet
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
