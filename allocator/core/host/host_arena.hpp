// An arena of host memory.
#pragma once

#include <atomic>
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
  // Gives its pages back to the system; its addresses stay, and find pages of zeros. Precondition: nothing lives in it.
  void drop_pages();
  // 0 before it has grown for the first time. Once a thread sees another one, it may ask for addresses(), too.
  std::uintptr_t base() const { return base_.load(std::memory_order_acquire); }
  Bytes size() const { return size_; }
  std::size_t addresses() const { return addresses_; }

 private:
  bool reserve_addresses(std::size_t bytes);

  void* memory() const { return reinterpret_cast<void*>(base()); }

  std::atomic<std::uintptr_t> base_{0};
  std::size_t addresses_ = 0;
  Bytes size_ = 0;
};

}  // namespace stowplan::allocator
