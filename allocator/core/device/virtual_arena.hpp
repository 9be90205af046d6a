// An arena in a device's virtual memory: a range of addresses is reserved once, and memory is mapped into it as needed.
//
//     addresses   |........#######...#######........|      # mapped, from begin to end, but for holes
//                 0       begin  hole      end   reach
//
// So an arena grows at both ends without moving, and no second one ever stands beside it. Mapping takes memory from the
// device at once; an arena that goes, or shrinks, gives it back at once: no work may use it then. Memory is mapped in
// pieces, and goes back piece by piece: small ones, so that what lives here and there keeps little more than itself.
//
// The functions are those of CUDA's driver and of HIP (CUDA driver API, "Virtual Memory Management"; HIP, "Virtual
// memory management"). PyTorch's expandable segments use them, too.
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

#include "cuda_api.hpp"
#include "plan.hpp"
#include "range_set.hpp"

namespace stowplan::allocator {

struct VirtualMemory {
  CudaApi api;
  Bytes reach = 0;           // addresses that an arena reserves: no more memory than this can be of use
  std::vector<int> devices;  // that may use the memory; it is the first one's, and the others may be refused

  // Returns a device's virtual memory. An arena reserves as many addresses as the device has bytes. Peers of the device
  // may access it, because programs copy from one device to another. Without virtual memory, page() is 0.
  static VirtualMemory of(const CudaApi& api, int device);
  // Bytes in which memory comes.
  Bytes page() const;
};

class VirtualArena {
 public:
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
