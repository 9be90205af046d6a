// Lanes that find the steps of their program by themselves.
//
//     request ──> StepFinder ── a step begins ──> the running step ends: its outcomes wait in a queue
//        │                                        the next one begins: it is expected to follow what expect() said
//        └─────> Lanes::route                         ^                                │
//                                                     └── the plan maker     <── take_outcomes(), Signal
//
// All that a request does is in here and under the owner's lock. Plans are made elsewhere, some time later; until then
// steps go on following what they followed. A step that did just that is not queued, so a hot loop wakes no thread.
//
// Each runner (step_slots.hpp: a thread, mostly) has steps of its own, in a step slot of its own. They are found from
// the requests of one stream, the first that asks; the runner's other streams have their lanes in the same steps. Of
// kMostRunners at once: another one takes the place of one that has not asked for kGone requests. The first step that
// is marked, by enter(), ends the search for good.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lanes.hpp"
#include "signal.hpp"
#include "step_finder.hpp"

namespace stowplan::allocator {

class AutoLanes : public Lanes {
 public:
  using Lanes::Lanes;

  static constexpr std::size_t kMostWaiting = 64;
  static constexpr std::size_t kMostRunners = 16;
  static constexpr std::uint64_t kGone = 4096;

  // From now on. Precondition: no step is running.
  void find_steps() { finds_steps_ = true; }

  Grant request(Bytes size, Stream stream, ThreadId thread, bool may_wait = false) {
    if (finds_steps()) look_for_steps(size, stream, thread);
    return route(size, stream, thread, may_wait);
  }
  // See Lanes. The other half of a request that asks this is route().
  bool is_in_the_way(Bytes size, Stream stream, ThreadId thread) {
    if (finds_steps()) look_for_steps(size, stream, thread);
    return Lanes::is_in_the_way(size, stream, thread);
  }

  // From any thread.
  bool finds_steps() const { return finds_steps_.load(std::memory_order_relaxed); }

  // Takes a step slot for a marked step of this thread, and ends the search, and the steps of threads that have ended;
  // none where its runner runs one already.
  std::optional<StepSlotNumber> enter(ThreadId thread);

  // How the lane's next steps begin; the running one takes part, too, if it follows no plan. `wanted`: the outcome of
  // every step is. Nothing where the search has ended.
  void expect(LaneStart start, bool wanted);

  // Ends the marked steps of all other threads, and returns their step slots: a fork has left these threads behind.
  std::vector<StepSlotNumber> end_steps_of_others(ThreadId thread);

  // Forgets what was seen of the running step and of those before, and searches anew.
  void stop_looking();

  std::vector<LaneOutcome> take_outcomes() { return std::exchange(outcomes_, {}); }
  Signal& signal() { return signal_; }

 private:
  struct Expected {
    LaneStart start{0, nullptr, {}, 0, false, true};  // without timestamps until expect() asks for them
    bool wanted = true;
  };

  // A runner whose steps are looked for.
  struct Watch {
    Runner runner = 0;
    std::unique_ptr<profiler::StepFinder> finder;
    std::optional<StepSlotNumber> step_slot;  // of the step that is running
    std::uint64_t last_request = 0;           // of all runners
  };

  void look_for_steps(Bytes size, Stream stream, ThreadId thread) {
    const Runner runner = slots().runner_of(thread);
    if (slots().is_interrupted(runner)) return;
    if (Watch* watch = watch_of(runner)) keep_steps(*watch, size, stream, thread);
  }
  Watch* watch_of(Runner runner) {
    ++asked_;
    if (watches_.empty() || watches_[latest_].runner != runner) return other_watch_of(runner);
    watches_[latest_].last_request = asked_;
    return &watches_[latest_];
  }
  Watch* other_watch_of(Runner runner);
  void keep_steps(Watch& watch, Bytes size, Stream stream, ThreadId thread);
  void begin_lanes(StepSlotNumber step_slot);
  void end_lanes(StepSlotNumber step_slot, bool is_step);
  void break_off(Watch& watch);
  void deliver(LaneNumber lane, StepOutcome outcome);
  Expected& expected(LaneNumber lane);

  std::atomic<bool> finds_steps_{false};
  std::vector<Watch> watches_;
  std::size_t latest_ = 0;   // of the runner that asked last
  std::uint64_t asked_ = 0;  // requests of all runners

  std::vector<Expected> expected_;  // by lane
  std::vector<LaneOutcome> outcomes_;
  Signal signal_;
};

}  // namespace stowplan::allocator
