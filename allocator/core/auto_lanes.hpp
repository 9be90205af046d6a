// Lanes that find the steps of their program by themselves.
//
//     request ──> StepFinder ── a step begins ──> the running step ends: its outcomes wait in a queue
//        │                                        the next one begins: it is expected to follow what expect() said
//        └─────> Lanes                                ^                                │
//                                                     └── whoever makes plans <── take_outcomes(), Signal
//
// All that a request does is in here and under the owner's lock. Plans are made elsewhere, some time later; until then
// steps go on following what they followed. Of steps that did just that nothing is queued, so that a hot loop wakes
// nobody up.
//
// Steps are those of one thread, the one that asks most (Boyer and Moore's vote), and are found from the requests of
// one stream, the first that asks; the thread's other streams have their lanes in the same steps. The first step that
// is marked, by enter(), ends the search for good.
#pragma once

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
  static constexpr std::uint32_t kMostVotes = 4096;

  // From now on. Precondition: no step is running.
  void find_steps() { finder_ = std::make_unique<profiler::StepFinder>(); }

  Grant request(Bytes size, Stream stream, ThreadId thread) {
    if (finder_ != nullptr && !is_interrupted(thread) && is_watched(thread)) keep_steps(size, stream, thread);
    return Lanes::request(size, stream, thread);
  }

  bool finds_steps() const { return finder_ != nullptr; }
  std::optional<StepSlotNumber> enter(ThreadId thread);

  // How the lane's next steps begin; the running one takes part, too, if it follows no plan. `wanted`: the outcome of
  // every step is. Nothing where the search has ended.
  void expect(LaneStart start, bool wanted);

  // Ends the marked steps of all other threads, and returns their step slots: a fork has left these threads behind.
  std::vector<StepSlotNumber> end_steps_of_others(ThreadId thread);

  std::vector<LaneOutcome> take_outcomes() { return std::exchange(outcomes_, {}); }
  Signal& signal() { return signal_; }

 private:
  struct Expected {
    LaneStart start;
    bool wanted = true;
  };

  bool is_watched(ThreadId thread);
  void keep_steps(Bytes size, Stream stream, ThreadId thread);
  void begin_lanes();
  void end_lanes();
  void break_off();
  void deliver(LaneNumber lane, StepOutcome outcome);
  Expected& expected(LaneNumber lane);

  std::unique_ptr<profiler::StepFinder> finder_;
  std::optional<StepSlotNumber> step_slot_;  // of the step that is running
  ThreadId watched_ = 0;
  std::uint32_t votes_ = 0;

  std::vector<Expected> expected_;  // by lane
  std::vector<LaneOutcome> outcomes_;
  Signal signal_;
};

}  // namespace stowplan::allocator
