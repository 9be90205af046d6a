// An arena in a device's heap: a range of the heap's addresses of which it takes what plans need, and gives back what
// they do not.
//
//     addresses   |##b##|....over....|      |##b##|        # blocks of the heap
//     arena             |#######.....·······|              # its own; . the heap's; · addresses for it alone
//                       0           reach
//
// It is put where the fewest bytes lack memory, so what the heap has there comes without a call of the driver, and what
// it gives back is the heap's at once: its stream's, until an event says that it is anybody's. The addresses that have
// no memory when it is put there are kept for it. A block that came to lie in it stays in the way until it is free.
//
// Any thread, at any time. One thread at a time calls the driver; what the arena has can be asked meanwhile.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "device_heap.hpp"
#include "range_set.hpp"

namespace stowplan::allocator {

class HeapArena {
 public:
  // Addresses for an arena; null where there are none. `stream`: its requests'; kShared: not known yet.
  static std::unique_ptr<HeapArena> place(DeviceHeap& heap, Bytes size, Stream stream);
  ~HeapArena();

  // Notes whose requests it serves from now on: the one before is done with its memory.
  void use(Stream stream);
  // Its stream is not known yet: the arena takes only memory that no stream may still use.
  void lose_stream() { has_stream_ = false; }
  // Has so many addresses from now on; false: a block is there.
  bool reach_to(Bytes size);
  // Takes at most `most` bytes of what it lacks in [begin, end), the last ones first, as far as the heap's account
  // allows or else its bound.
  CudaError extend(Bytes begin, Bytes end, Bytes most, bool in_account);
  // Gives these ranges of its memory back.
  void give(const std::vector<Range>& idle);

  std::uintptr_t base() const { return static_cast<std::uintptr_t>(begin_); }
  Bytes reach() const { return end_ - begin_; }
  Bytes missing(Bytes begin, Bytes end) const;  // of [begin, end), what it has not
  Bytes bytes() const { return reach() - missing(0, reach()); }
  std::vector<Range> memory() const;  // ranges that do not touch, the lowest first

 private:
  using Lock = std::lock_guard<std::mutex>;
  using Taken = std::map<Bytes, Bytes>;  // begin -> end; each holds a promise of the heap's

  explicit HeapArena(DeviceHeap& heap) : heap_(heap) {}
  CudaError take(Bytes begin, Bytes end, bool in_account);
  CudaError fill(Bytes begin, Bytes end, bool in_account);
  void add(Taken::node_type node) noexcept;
  void put_back(Bytes begin, Bytes end) noexcept;

  DeviceHeap& heap_;
  Bytes begin_ = 0;
  std::atomic<Bytes> end_{0};  // written under the heap's lock
  Holes::State user_ = 0;      // guarded by the heap's lock, as what is taken
  std::atomic<bool> has_stream_{true};
  Taken taken_;
};

}  // namespace stowplan::allocator
