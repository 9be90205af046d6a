#include "auto_lanes.hpp"

#include <algorithm>

namespace stowplan::allocator {

using profiler::StepFinder;

std::optional<StepSlotNumber> AutoLanes::enter(ThreadId thread) {
  if (finds_steps_) {
    stop_looking();
    finds_steps_ = false;
    outcomes_.clear();
  }
  for (const StepSlotNumber step_slot : slots().of_ended_threads()) end(step_slot);
  return take_step_slot(thread);
}

std::vector<StepSlotNumber> AutoLanes::end_steps_of_others(ThreadId thread) {
  std::vector<StepSlotNumber> theirs = slots().of_others(thread);
  for (const Watch& watch : watches_) {  // such a step ends when another runner takes its place
    theirs.erase(std::remove(theirs.begin(), theirs.end(), watch.step_slot), theirs.end());
  }
  for (const StepSlotNumber step_slot : theirs) end(step_slot);
  return theirs;
}

// The named slow path of watch_of(): another runner than the last one. Null where there are too many.
AutoLanes::Watch* AutoLanes::other_watch_of(Runner runner) {
  auto at = std::find_if(watches_.begin(), watches_.end(), [=](const Watch& watch) { return watch.runner == runner; });
  if (at == watches_.end() && watches_.size() < kMostRunners) {
    at = watches_.insert(at, Watch{runner, std::make_unique<StepFinder>(), std::nullopt, asked_});
  }
  if (at == watches_.end()) {
    at = std::min_element(watches_.begin(), watches_.end(),
                          [](const Watch& a, const Watch& b) { return a.last_request < b.last_request; });
    if (at->last_request + kGone > asked_) return nullptr;
    break_off(*at);
    at->finder->forget();
    at->runner = runner;
  }
  at->last_request = asked_;
  latest_ = static_cast<std::size_t>(at - watches_.begin());
  return &*at;
}

void AutoLanes::keep_steps(Watch& watch, Bytes size, Stream stream, ThreadId thread) {
  if (!watch.step_slot) {
    watch.step_slot = take_step_slot(thread);
    begin_lanes(*watch.step_slot);
  }
  const StepSlotNumber step_slot = *watch.step_slot;
  if (!router().is_first(step_slot, stream)) return;
  StepFinder& finder = *watch.finder;
  const LaneNumber first = lanes_of(step_slot).front();
  Replay& replay = lane(first);
  const Replay::Course plan = replay.course(size);
  const auto hint = plan == Replay::Course::goes_on   ? StepFinder::Hint::it_does_not
                    : plan == Replay::Course::is_over ? StepFinder::Hint::it_does
                                                      : StepFinder::Hint::none;
  switch (finder.observe(size, stream, replay.recorder().live_bytes(), hint)) {
    case StepFinder::Cue::none: return;
    case StepFinder::Cue::begins: end_lanes(step_slot, true); break;
    case StepFinder::Cue::found: {
      auto [one, two] = replay.end_two_steps(finder.first(), finder.second());
      deliver(first, {});  // they do not follow the last step delivered
      deliver(first, std::move(one));
      deliver(first, std::move(two));
      for (const LaneNumber other : lanes_of(step_slot)) {
        if (other == first) continue;
        lane(other).end_step();
        deliver(other, {});
      }
      break;
    }
    case StepFinder::Cue::lost: end_lanes(step_slot, false); break;
  }
  count_step(step_slot);
  begin_lanes(step_slot);
}

void AutoLanes::begin_lanes(StepSlotNumber step_slot) {
  if (!takes_over(step_slot)) welcome(step_slot);  // else the request would have to wait for the device
  for (const LaneNumber number : lanes_of(step_slot)) {
    LaneStart& next = expected(number).start;
    next.lane = number;
    begin(next);
  }
}

// Ends what runs in these lanes: a step, or what is none.
void AutoLanes::end_lanes(StepSlotNumber step_slot, bool is_step) {
  for (const LaneNumber number : lanes_of(step_slot)) {
    StepOutcome outcome = lane(number).end_step();
    deliver(number, is_step ? std::move(outcome) : StepOutcome{});
  }
}

void AutoLanes::break_off(Watch& watch) {
  if (!watch.step_slot) return;
  end_lanes(*watch.step_slot, false);
  leave(*watch.step_slot);
  watch.step_slot.reset();
}

void AutoLanes::stop_looking() {
  for (Watch& watch : watches_) break_off(watch);
  watches_.clear();
  latest_ = 0;
}

AutoLanes::Expected& AutoLanes::expected(LaneNumber lane) {
  if (expected_.size() <= lane) expected_.resize(lane + std::size_t{1});
  return expected_[lane];
}

void AutoLanes::deliver(LaneNumber number, StepOutcome outcome) {
  const Expected& expected = this->expected(number);
  const PlanPtr& plan = expected.start.plan;
  const bool as_expected = outcome.clean && plan != nullptr && outcome.tag == plan->tag;
  if (as_expected && !expected.wanted && !lane(number).has_retired_arenas()) return;
  if (outcomes_.size() >= kMostWaiting) {  // they are not taken
    outcomes_.clear();
    outcome = {};
  }
  outcomes_.push_back({number, std::move(outcome)});
  signal_.give();
}

void AutoLanes::expect(LaneStart start, bool wanted) {
  if (!finds_steps_) return;
  Replay& replay = lane(start.lane);
  if (start.plan != nullptr) replay.join(start.plan);
  replay.set_timestamps(start.timestamps);
  Expected& next = expected(start.lane);
  next = {std::move(start), wanted};
}

}  // namespace stowplan::allocator
