// The lanes behind a device allocator: one lock around them, and nothing that knows Python inside.
//
// Streams may use a block in other places than the one that it was asked for on. Then its free is a hold() (replay.hpp),
// and the owner of the streams says when it is over.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "locked_lanes.hpp"

namespace stowplan::allocator {

class DevicePool {
 public:
  // CUDA's name for the calling thread's own default stream: many streams, that is, under one handle.
  static constexpr Stream kPerThread = 2;

  Grant request(Bytes size, Stream stream) {
    const ThreadId thread = profiler::current_thread();
    if (stream == kPerThread) stream = -static_cast<Stream>(thread);
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return lanes_.request(size, stream, thread);
  }
  void adopt(BlockId id, std::uintptr_t address) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    lanes_.adopt(id, address);
  }
  void release(BlockId id) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    lanes_.release(id);
  }

  void hold(BlockId id, bool may_wait) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    lanes_.hold(id, may_wait);
  }
  void let_go(BlockId id) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    lanes_.let_go(id);
  }
  std::vector<BlockId> awaited(BlockId granted) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return lanes_.awaited(granted);
  }
  void drop_awaited(BlockId granted) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    lanes_.drop_awaited(granted);
  }
  Stream stream_of(BlockId id) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return lanes_.stream_of(id);
  }

  LockedLanes* lanes() { return &locked_; }

 private:
  static constexpr Bytes kUnit = 512;  // what CuPy's own pool rounds to, and what CUDA aligns to

  profiler::SpinLock lock_;
  AutoLanes lanes_{kUnit};
  LockedLanes locked_{lock_, lanes_};
};

}  // namespace stowplan::allocator
