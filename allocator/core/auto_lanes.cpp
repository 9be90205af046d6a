#include "auto_lanes.hpp"

#include <algorithm>

namespace stowplan::allocator {

using profiler::StepFinder;

std::optional<StepSlotNumber> AutoLanes::enter(ThreadId thread) {
  if (finder_ != nullptr) {
    break_off();
    finder_.reset();
    outcomes_.clear();
  }
  return Lanes::enter(thread);
}

std::vector<StepSlotNumber> AutoLanes::end_steps_of_others(ThreadId thread) {
  std::vector<StepSlotNumber> theirs = step_slots_of_others(thread);
  theirs.erase(std::remove(theirs.begin(), theirs.end(), step_slot_),
               theirs.end());  // it ends when nobody asks any more
  for (const StepSlotNumber step_slot : theirs) end(step_slot);
  return theirs;
}

bool AutoLanes::is_watched(ThreadId thread) {
  if (thread == watched_) {
    votes_ = std::min(votes_ + 1, kMostVotes);
    return true;
  }
  if (votes_ > 0) {
    --votes_;
    return false;
  }
  break_off();
  finder_->forget();
  watched_ = thread;
  votes_ = 1;
  return true;
}

void AutoLanes::keep_steps(Bytes size, Stream stream, ThreadId thread) {
  if (!step_slot_) {
    step_slot_ = Lanes::enter(thread);
    begin_lanes();
  }
  if (!is_first_lane(*step_slot_, stream)) return;
  const LaneNumber first = lanes_of(*step_slot_).front();
  Replay& replay = lane(first);
  const Replay::Course plan = replay.course(size);
  const auto hint = plan == Replay::Course::goes_on   ? StepFinder::Hint::it_does_not
                    : plan == Replay::Course::is_over ? StepFinder::Hint::it_does
                                                      : StepFinder::Hint::none;
  switch (finder_->observe(size, stream, replay.recorder().live_bytes(), hint)) {
    case StepFinder::Cue::none: return;
    case StepFinder::Cue::begins: end_lanes(); break;
    case StepFinder::Cue::found: {
      auto [one, two] = replay.end_two_steps(finder_->first(), finder_->second());
      deliver(first, {});  // they do not follow the last step delivered
      deliver(first, std::move(one));
      deliver(first, std::move(two));
      for (const LaneNumber other : lanes_of(*step_slot_)) {
        if (other == first) continue;
        lane(other).end_step();
        deliver(other, {});
      }
      break;
    }
    case StepFinder::Cue::lost:
      for (const LaneNumber number : lanes_of(*step_slot_)) {
        lane(number).end_step();
        deliver(number, {});
      }
      break;
  }
  count_step(*step_slot_);
  begin_lanes();
}

void AutoLanes::begin_lanes() {
  if (!takes_over(*step_slot_)) welcome(*step_slot_);  // else somebody would have to wait for the device
  for (const LaneNumber number : lanes_of(*step_slot_)) {
    const LaneStart& next = expected(number).start;
    lane(number).set_may_wait(false);  // nobody has looked whether its stream can wait
    lane(number).begin_step(next.plan, next.others);
  }
}

void AutoLanes::end_lanes() {
  for (const LaneNumber number : lanes_of(*step_slot_)) deliver(number, lane(number).end_step());
}

// Ends a step that is none.
void AutoLanes::break_off() {
  if (!step_slot_) return;
  for (const LaneNumber number : lanes_of(*step_slot_)) {
    lane(number).end_step();
    deliver(number, {});
  }
  leave(*step_slot_);
  step_slot_.reset();
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
  if (outcomes_.size() >= kMostWaiting) {  // nobody takes them
    outcomes_.clear();
    outcome = {};
  }
  outcomes_.push_back({number, std::move(outcome)});
  signal_.give();
}

void AutoLanes::expect(LaneStart start, bool wanted) {
  if (finder_ == nullptr) return;
  Replay& replay = lane(start.lane);
  if (start.plan != nullptr) replay.join(start.plan);
  replay.set_timestamps(start.timestamps);
  Expected& next = expected(start.lane);
  next = {std::move(start), wanted};
}

}  // namespace stowplan::allocator
