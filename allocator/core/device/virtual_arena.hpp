// An arena in a device's virtual memory: a range of addresses is reserved once, and memory is mapped into it as needed.
//
//     addresses   |........################........|      # mapped: one run, from begin to end
//                 0       begin           end    reach
//
// So an arena grows at both ends without moving, and no second one ever stands beside it. Mapping takes memory from the
// device at once; an arena that goes gives it back at once: no work may use it then.
//
// The functions are those of CUDA's driver and of HIP, which have the same parameters under other names (CUDA driver
// API, "Virtual Memory Management"; HIP, "Virtual memory management"). PyTorch's expandable segments use them, too.
//
// Any thread, at any time: a mutex guards the pieces. O(pieces) to end; a piece is mapped by each extend().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plan.hpp"

namespace stowplan::allocator {

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc, of which HIP's have the same layout.
struct MemoryLocation {
  int type = 1;  // a device
  int device = 0;
};
struct MemoryProperties {
  int type = 1;  // pinned: the only one there is
  int handle_types = 0;
  MemoryLocation location;
  void* metadata = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;  // read and write
};
using MemoryHandle = std::uint64_t;

// Each returns an error, 0 for none. Member, name after the library's prefix ("cuMem", "hipMem"), and parameters.
// clang-format off
#define STOWPLAN_VIRTUAL_MEMORY_FUNCTIONS(function) \
  function(granularity, GetAllocationGranularity, (std::size_t*, const MemoryProperties*, int recommended)) \
  function(reserve, AddressReserve, (void**, std::size_t, std::size_t alignment, void* address, unsigned long long)) \
  function(free, AddressFree, (void*, std::size_t)) \
  function(create, Create, (MemoryHandle*, std::size_t, const MemoryProperties*, unsigned long long)) \
  function(release, Release, (MemoryHandle)) \
  function(map, Map, (void*, std::size_t, std::size_t offset, MemoryHandle, unsigned long long)) \
  function(unmap, Unmap, (void*, std::size_t)) \
  function(set_access, SetAccess, (void*, std::size_t, const MemoryAccess*, std::size_t))
// clang-format on

struct VirtualMemory {
// A name and a list of parameters: neither stands in parentheses of its own.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define STOWPLAN_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  STOWPLAN_VIRTUAL_MEMORY_FUNCTIONS(STOWPLAN_MEMBER)
#undef STOWPLAN_MEMBER
  Bytes reach = 0;           // addresses that an arena reserves: no more memory than this can be of use
  std::vector<int> devices;  // that may use the memory; it is the first one's, and the others may be refused

  // Finds the functions in a library that the process has loaded; false where it has not, or lacks one.
  bool find(const char* library, const char* prefix);
  // Bytes in which memory comes; 0 where the device, or its driver, has no virtual memory in spite of the functions.
  Bytes page() const;
};

class VirtualArena {
 public:
  static constexpr int kOutOfMemory = 2;  // CUDA's and HIP's number

  // Null where the device has no virtual memory, or no addresses are left.
  static std::unique_ptr<VirtualArena> reserve(const VirtualMemory& memory);
  ~VirtualArena();
  VirtualArena(const VirtualArena&) = delete;
  VirtualArena& operator=(const VirtualArena&) = delete;

  // Maps what is missing of [begin, end), and of what lies between it and the run, or returns an error. `begin` and
  // `end` are multiples of the granularity; the first call says where the run is.
  int extend(Bytes begin, Bytes end);

  std::uintptr_t base() const { return base_; }
  Bytes reach() const { return memory_.reach; }
  Bytes begin() const { return begin_; }
  Bytes end() const { return end_; }
  Bytes mapped() const { return mapped_; }
  Bytes rounded(Bytes size) const { return (size + granularity_ - 1) / granularity_ * granularity_; }
  Bytes whole(Bytes size) const { return size / granularity_ * granularity_; }

 private:
  struct Piece {
    Bytes begin;
    Bytes size;
    MemoryHandle handle;
  };

  VirtualArena(const VirtualMemory& memory, std::uintptr_t base, Bytes granularity)
      : memory_(memory), base_(base), granularity_(granularity) {}
  void* at(Bytes offset) const { return reinterpret_cast<void*>(base_ + static_cast<std::uintptr_t>(offset)); }
  int map(Bytes begin, Bytes end);

  const VirtualMemory memory_;
  const std::uintptr_t base_;
  const Bytes granularity_;
  std::mutex mutex_;  // held while memory is mapped, which may wait for streams
  std::vector<Piece> pieces_;
  std::atomic<Bytes> begin_{0}, end_{0}, mapped_{0};
};

}  // namespace stowplan::allocator
