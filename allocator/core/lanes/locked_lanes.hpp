// The lanes as the owner of steps sees them: each call takes the lock, and is made for the calling thread.
//
// Finalizers free blocks from within garbage collection, that is, from within any allocation of Python's. So nothing is
// allocated from Python while the lock is held, and a free needs nothing but the lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "host_memory.hpp"
#include "lanes.hpp"

namespace stowplan::allocator {

struct Entered {
  int step_slot = -1;       // none: the thread runs a step already
  std::uint64_t step = 0;   // its number in the step slot
  bool takes_over = false;  // wait for the device, then welcome()
  std::vector<LaneNumber> lanes;
};

class LockedLanes {
  // Calls a function, or a member function of the lanes with these arguments, under the lock.
  template <class F, class... Arguments>
  auto locked(F&& f, Arguments&&... arguments) {
    std::lock_guard<SpinLock> lock(lock_);
    if (kDebug) lanes_.assert_invariants();
    if constexpr (std::is_member_function_pointer_v<F>) {
      return std::invoke(f, lanes_, std::forward<Arguments>(arguments)...);
    } else {
      return f();
    }
  }

 public:
  LockedLanes(SpinLock& lock, Lanes& lanes) : lock_(lock), lanes_(lanes) {}

  ThreadId simulated = 0;  // the thread that calls; 0: it is the one that does

  // A step of this thread: enter(), begin(), end(), one lock each. What its lanes may follow is asked in between, as
  // there may be new lanes; and where a lane passes to another stream, the owner waits for the device first, and says
  // welcome().
  Entered enter() {
    return locked([&]() -> Entered {
      const auto step_slot = lanes_.enter(here());
      if (!step_slot) return {};
      try {
        const bool waits = lanes_.takes_over(*step_slot);
        if (!waits) lanes_.welcome(*step_slot);
        return {static_cast<int>(*step_slot), lanes_.steps(*step_slot), waits, lanes_.lanes_of(*step_slot)};
      } catch (...) {  // there is no memory for its lanes
        lanes_.leave(*step_slot);
        throw;
      }
    });
  }
  std::vector<LaneNumber> welcome(StepSlotNumber step_slot) {
    return locked([&] {
      lanes_.welcome(step_slot);
      return lanes_.lanes_of(step_slot);
    });
  }
  // False, and nothing has begun, where `all_fit` is asked for and an arena is too small for what is to be replayed
  // in it.
  bool begin(const std::vector<LaneStart>& starts, bool all_fit) {
    return locked([&] {
      const auto fits = [&](const LaneStart& start) {
        return start.arena_bytes <= lanes_.lane(start.lane).arena().whole();
      };
      if (all_fit && !std::all_of(starts.begin(), starts.end(), fits)) return false;
      for (const LaneStart& start : starts) lanes_.begin(start);
      return true;
    });
  }
  // Nothing where that step has ended.
  std::vector<LaneOutcome> end(StepSlotNumber step_slot, std::uint64_t step) {
    return locked([&] { return lanes_.runs(step_slot, step) ? lanes_.end(step_slot) : std::vector<LaneOutcome>{}; });
  }
  std::vector<StepSlotNumber> end_steps_of_others() { return locked(&Lanes::end_steps_of_others, here()); }

  std::vector<LaneNumber> lanes_of(StepSlotNumber step_slot) { return locked(&Lanes::lanes_of, step_slot); }
  Scope scope() const { return lanes_.scope(); }
  LaneNumber add_lane(StepSlotNumber step_slot) { return locked(&Lanes::add_lane, step_slot); }
  void set_interrupted(bool interrupted) { locked(&Lanes::set_interrupted, here(), interrupted); }

  // Of one lane.
  Arena arena(LaneNumber lane) {
    return locked([&] { return lanes_.lane(lane).arena(); });
  }
  Bytes arena_bytes(LaneNumber lane) { return arena(lane).mapped; }
  std::vector<std::pair<Bytes, Bytes>> occupied(LaneNumber lane) {
    return locked([&] { return lanes_.lane(lane).occupied(); });
  }
  std::optional<Stream> stream_of_lane(LaneNumber lane) { return locked(&Lanes::stream_of_lane, lane); }
  void reserve(LaneNumber lane, std::uintptr_t base, Bytes size) {
    locked([&] { lanes_.lane(lane).reserve(base, size); });
  }

  void retire_idle_arena(LaneNumber lane) {
    locked([&] { lanes_.lane(lane).retire_idle_arena(); });
  }

  // Of all.
  void retire_idle_arenas() { locked(&Lanes::retire_idle_arenas); }
  std::vector<std::uintptr_t> take_dead_arenas() { return locked(&Lanes::take_dead_arenas); }
  Counters counters() { return locked(&Lanes::counters); }
  Situation situation() { return locked(&Lanes::situation, here()); }
  void refuse(BlockId id) { locked(&Lanes::refuse, id, here()); }
  Failure failure() { return locked(&Lanes::failure); }
  void reset_peaks() { locked(&Lanes::reset_peaks); }

 private:
  ThreadId here() const { return simulated != 0 ? simulated : current_thread(); }

  SpinLock& lock_;
  Lanes& lanes_;
};

}  // namespace stowplan::allocator
