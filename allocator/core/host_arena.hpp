// An arena of host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "step_recorder.hpp"

namespace stowplan::allocator {

using profiler::Bytes;

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

}  // namespace stowplan::allocator
