// The lanes as the owner of steps sees them: one lock around each call, and this thread for the thread.
//
// Finalizers free blocks from within garbage collection, that is, from within any allocation of Python's. So nothing is
// allocated from Python while the lock is held, and a free needs nothing but the lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "auto_lanes.hpp"
#include "host_memory.hpp"

namespace stowplan::allocator {

class LockedLanes {
  template <class F>
  auto locked(F&& f) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    if (kDebug) lanes_.assert_invariants();
    return std::forward<F>(f)();
  }
  template <class Optional>
  static int number(const Optional& berth) {
    return berth ? static_cast<int>(*berth) : -1;
  }

 public:
  LockedLanes(profiler::SpinLock& lock, AutoLanes& lanes) : lock_(lock), lanes_(lanes) {}

  // Berths: -1 for none.
  int enter() {
    return locked([&] { return number(lanes_.enter(profiler::current_thread())); });
  }
  int berth() {
    return locked([&] { return number(lanes_.berth_of(profiler::current_thread())); });
  }
  void leave(BerthNumber berth) {
    locked([&] { lanes_.leave(berth); });
  }
  std::vector<LaneNumber> lanes_of(BerthNumber berth) {
    return locked([&] { return lanes_.lanes_of(berth); });
  }
  LaneNumber add_lane(BerthNumber berth) {
    return locked([&] { return lanes_.add_lane(berth); });
  }
  bool takes_over(BerthNumber berth) {
    return locked([&] { return lanes_.takes_over(berth); });
  }
  void welcome(BerthNumber berth) {
    locked([&] { lanes_.welcome(berth); });
  }
  void set_interrupted(bool interrupted) {
    locked([&] { lanes_.set_interrupted(profiler::current_thread(), interrupted); });
  }

  // Steps that are found.
  void find_steps() {
    locked([&] { lanes_.find_steps(); });
  }
  void expect(LaneNumber lane, const PlanPtr& plan, const std::vector<PlanPtr>& others, bool wanted) {
    locked([&] { lanes_.expect(lane, plan, others, wanted); });
  }
  std::vector<LaneOutcome> take_outcomes() {
    return locked([&] { return lanes_.take_outcomes(); });
  }
  Signal& signal() { return lanes_.signal(); }

  // Of one lane.
  void begin_step(LaneNumber lane, const PlanPtr& plan, const std::vector<PlanPtr>& others, bool may_wait) {
    locked([&] {
      lanes_.lane(lane).set_may_wait(may_wait);
      lanes_.lane(lane).begin_step(plan, others);
    });
  }
  StepOutcome end_step(LaneNumber lane) {
    return locked([&] { return lanes_.lane(lane).end_step(); });
  }
  void set_timestamps(LaneNumber lane, bool on) {
    locked([&] { lanes_.lane(lane).set_timestamps(on); });
  }
  Bytes arena_size(LaneNumber lane) {
    return locked([&] { return lanes_.lane(lane).arena().size; });
  }
  void reserve(LaneNumber lane, std::uintptr_t base, Bytes size) {
    locked([&] { lanes_.lane(lane).reserve(base, size); });
  }

  // Of all.
  void retire_idle_arenas() {
    locked([&] {
      for (std::size_t i = 0; i < lanes_.lanes(); ++i) lanes_.lane(static_cast<LaneNumber>(i)).retire_idle_arena();
    });
  }
  std::vector<std::uintptr_t> take_dead_arenas() {
    return locked([&] { return lanes_.take_dead_arenas(); });
  }
  Counters counters() {
    return locked([&] { return lanes_.counters(); });
  }
  Situation situation() {
    return locked([&] { return lanes_.situation(profiler::current_thread()); });
  }
  void note_failure(BlockId id) {
    locked([&] { lanes_.note_failure(id, profiler::current_thread()); });
  }
  Failure failure() {
    return locked([&] { return lanes_.failure(); });
  }
  void reset_peaks() {
    locked([&] { lanes_.reset_peaks(); });
  }

 private:
  profiler::SpinLock& lock_;
  AutoLanes& lanes_;
};

}  // namespace stowplan::allocator
