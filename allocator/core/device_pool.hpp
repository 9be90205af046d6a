// The replay core behind a device allocator: one lock around it, and nothing that knows Python inside.
//
// Finalizers free blocks from within garbage collection, that is, from within any allocation of Python's. So nothing is
// allocated from Python while the lock is held, and a free needs nothing but the lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "auto_replay.hpp"
#include "host_memory.hpp"

namespace stowplan::allocator {

class DevicePool {
 public:
  Grant request(Bytes size, Stream stream) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.request(size, stream, profiler::current_thread());
  }
  void adopt(BlockId id, std::uintptr_t address) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    replay_.adopt(id, address);
  }
  void release(BlockId id) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    replay_.release(id);
  }

  bool begin_step(PlanPtr plan, std::vector<PlanPtr> others) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.begin_step(profiler::current_thread(), std::move(plan), std::move(others));
  }
  StepOutcome end_step() {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.end_step();
  }
  void find_steps() {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    replay_.find_steps();
  }
  void expect(PlanPtr plan, std::vector<PlanPtr> others, bool wanted) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    replay_.expect(std::move(plan), std::move(others), wanted);
  }
  std::vector<StepOutcome> take_outcomes() {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.take_outcomes();
  }
  Signal& signal() { return replay_.signal(); }
  void set_interrupted(bool interrupted) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    replay_.set_interrupted(profiler::current_thread(), interrupted);
  }
  void set_timestamps(bool on) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    replay_.set_timestamps(on);
  }

  Bytes arena_size() {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.arena().size;
  }
  void reserve(std::uintptr_t base, Bytes size) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    replay_.reserve(base, size);
  }
  bool retire_idle_arena() {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.retire_idle_arena();
  }
  std::vector<std::uintptr_t> take_dead_arenas() {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.take_dead_arenas();
  }

  Counters counters() {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return replay_.counters();
  }

 private:
  static constexpr Bytes kUnit = 512;  // what CuPy's own pool rounds to, and what CUDA aligns to

  profiler::SpinLock lock_;
  AutoReplay replay_{kUnit};
};

}  // namespace stowplan::allocator
