// An arena in a device's virtual memory: a range of addresses is reserved once, and memory is mapped into it as needed.
//
//     addresses   |........#######...#######........|      # mapped, from begin to end, but for holes
//                 0       begin  hole      end   reach
//
// So an arena grows at both ends without moving, and no second one ever stands beside it. Mapping takes memory from the
// device at once; an arena that goes, or shrinks, gives it back at once: no work may use it then. Memory is mapped in
// pieces, and goes back piece by piece: small ones, so that what lives here and there keeps little more than itself.
//
// The functions are those of CUDA's driver and of HIP, which have the same parameters under other names (CUDA driver
// API, "Virtual Memory Management"; HIP, "Virtual memory management"). PyTorch's expandable segments use them, too.
//
// Any thread, at any time. One thread at a time maps and unmaps, which may wait for streams; what has memory can be
// asked meanwhile. O(pieces) to end, to shrink, and to say where holes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "plan.hpp"
#include "range_set.hpp"

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
  // Bytes in which memory comes; 0 where there is no virtual memory, the functions or not.
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

  // Maps at most `most` bytes of what has no memory in [begin, end), its end first, or returns an error. All three are
  // multiples of the granularity.
  int extend(Bytes begin, Bytes end, Bytes most);
  // Unmaps pieces that lie in the ranges, until so many bytes have gone back; returns how many have.
  Bytes shrink(const std::vector<Range>& idle, Bytes enough);

  std::uintptr_t base() const { return base_; }
  Bytes reach() const { return memory_.reach; }
  Bytes page() const { return granularity_; }
  // Of [begin, end), what has no memory: how many bytes.
  Bytes missing(Bytes begin, Bytes end) const;
  Bytes mapped() const { return reach() - missing(0, reach()); }
  // What has memory: ranges that do not touch, the lowest first.
  std::vector<Range> memory() const;
  Bytes rounded(Bytes size) const { return (size + granularity_ - 1) / granularity_ * granularity_; }
  Bytes whole(Bytes size) const { return size / granularity_ * granularity_; }

 private:
  struct Piece {
    Bytes end;
    MemoryHandle handle;
  };
  using Pieces = std::map<Bytes, Piece>;  // by their beginning

  VirtualArena(const VirtualMemory& memory, std::uintptr_t base, Bytes granularity)
      : memory_(memory), base_(base), granularity_(granularity) {}
  std::uintptr_t address(Bytes offset) const { return base_ + static_cast<std::uintptr_t>(offset); }
  void* at(Bytes offset) const { return reinterpret_cast<void*>(address(offset)); }
  int map(Bytes begin, Bytes end);
  Pieces::iterator unmap(Pieces::iterator piece);

  const VirtualMemory memory_;
  const std::uintptr_t base_;
  const Bytes granularity_;
  std::mutex changing_;       // held while memory is mapped and unmapped; before `mutex_`
  mutable std::mutex mutex_;  // guards the pieces, which change under both
  Pieces pieces_;
};

}  // namespace stowplan::allocator
