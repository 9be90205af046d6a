// The lanes as the service of a HostMemory, and what needs both: the arenas' memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "auto_lanes.hpp"
#include "host_memory.hpp"

namespace stowplan::allocator {

using profiler::Upstream;

// Widest vector loads and a cache line: more than NumPy's default promises.
constexpr Bytes kHostAlignment = 64;

// An arena that grows in place: a wide range of addresses is set aside (which takes no memory), and as much of it is
// made usable as is asked for. So a larger plan never needs a second arena beside the first.
class HostArena {
 public:
  HostArena() = default;
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // False, and nothing changed, where the system has no memory or no addresses for it.
  bool grow(Bytes size);
  std::uintptr_t base() const { return reinterpret_cast<std::uintptr_t>(memory_); }
  Bytes size() const { return size_; }
  std::size_t addresses() const { return addresses_; }

 private:
  bool set_aside(std::size_t bytes);

  void* memory_ = nullptr;
  std::size_t addresses_ = 0;
  Bytes size_ = 0;
};

// Lanes that own their arenas.
class HostLanes : public AutoLanes {
 public:
  explicit HostLanes(const Upstream&) : AutoLanes(kHostAlignment) {}
  bool grow(LaneNumber lane, Bytes size);
  const HostArena& memory(LaneNumber lane) const { return *memory_[lane]; }

 private:
  std::vector<std::unique_ptr<HostArena>> memory_;  // by lane; null where it has none yet
};

using HostMemory = profiler::HostMemory<HostLanes>;

// Makes the lane's arena at least this large. False, and nothing changed, where there is no memory for it.
bool host_reserve(HostMemory& memory, LaneNumber lane, Bytes size);

}  // namespace stowplan::allocator
