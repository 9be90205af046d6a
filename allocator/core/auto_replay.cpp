#include "auto_replay.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::allocator {

using profiler::StepFinder;

bool AutoReplay::begin_step(ThreadId thread, PlanPtr plan, std::vector<PlanPtr> others) {
  if (finder_ != nullptr) {
    if (in_step()) end_step();  // nobody's step: it says nothing
    finder_.reset();
    outcomes_.clear();
  }
  return Replay::begin_step(thread, std::move(plan), std::move(others));
}

void AutoReplay::set_interrupted(ThreadId thread, bool interrupted) {
  if (finder_ != nullptr) {
    const auto at = std::find(interrupted_threads_.begin(), interrupted_threads_.end(), thread);
    if (interrupted && at == interrupted_threads_.end()) interrupted_threads_.push_back(thread);
    if (!interrupted && at != interrupted_threads_.end()) interrupted_threads_.erase(at);
  }
  Replay::set_interrupted(thread, interrupted);
}

bool AutoReplay::is_interrupted(ThreadId thread) const {
  return !interrupted_threads_.empty() &&
         std::find(interrupted_threads_.begin(), interrupted_threads_.end(), thread) != interrupted_threads_.end();
}

bool AutoReplay::is_watched(ThreadId thread) {
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

void AutoReplay::keep_steps(Bytes size, Stream stream, ThreadId thread) {
  const Course plan = course(size);
  const auto hint = plan == Course::goes_on   ? StepFinder::Hint::it_does_not
                    : plan == Course::is_over ? StepFinder::Hint::it_does
                                              : StepFinder::Hint::none;
  switch (finder_->observe(size, stream, recorder().live_bytes(), hint)) {
    case StepFinder::Cue::none:
      if (in_step()) return;
      break;
    case StepFinder::Cue::begins:
      deliver(end_step());
      break;
    case StepFinder::Cue::found: {
      auto [first, second] = end_two_steps(finder_->first(), finder_->second());
      deliver({});  // they do not follow the last step delivered
      deliver(std::move(first));
      deliver(std::move(second));
      break;
    }
    case StepFinder::Cue::lost:
      break_off();
      break;
  }
  Replay::begin_step(thread, expected_, expected_others_);
}

// Ends a step that is none.
void AutoReplay::break_off() {
  if (!in_step()) return;
  end_step();
  deliver({});
}

void AutoReplay::deliver(StepOutcome outcome) {
  const bool as_expected = outcome.clean && expected_ != nullptr && outcome.tag == expected_->tag;
  if (as_expected && !wanted_ && !has_retired_arenas()) return;
  if (outcomes_.size() >= kMostWaiting) {  // nobody takes them
    outcomes_.clear();
    outcome = {};
  }
  outcomes_.push_back(std::move(outcome));
  signal_.give();
}

void AutoReplay::expect(PlanPtr plan, std::vector<PlanPtr> others, bool wanted) {
  expected_ = std::move(plan);
  expected_others_ = std::move(others);
  wanted_ = wanted;
  if (finder_ != nullptr && expected_ != nullptr) join(expected_);
}

std::vector<StepOutcome> AutoReplay::take_outcomes() { return std::exchange(outcomes_, {}); }

}  // namespace stowplan::allocator
