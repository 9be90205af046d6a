#include "step_slots.hpp"

#include <algorithm>

namespace stowplan::allocator {

template <class Condition>
std::optional<StepSlotNumber> StepSlots::first(Condition condition) const {
  const auto at = std::find_if(slots_.begin(), slots_.end(), condition);
  if (at == slots_.end()) return std::nullopt;
  return static_cast<StepSlotNumber>(at - slots_.begin());
}

std::optional<StepSlotNumber> StepSlots::of(Runner runner) const {
  return first([=](const Slot& slot) { return slot.runner == runner; });
}

StepSlotNumber StepSlots::nearest(Runner runner) const {
  if (const auto running = of(runner)) return *running;
  return first([=](const Slot& slot) { return slot.last_runner == runner; }).value_or(0);
}

std::vector<StepSlotNumber> StepSlots::of_others(ThreadId thread) const {
  std::vector<StepSlotNumber> theirs;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].runner != 0 && slots_[i].begun_by != thread) theirs.push_back(static_cast<StepSlotNumber>(i));
  }
  return theirs;
}

std::vector<StepSlotNumber> StepSlots::of_ended_threads() const {
  std::vector<StepSlotNumber> theirs;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].runner != 0 && slots_[i].life.expired()) theirs.push_back(static_cast<StepSlotNumber>(i));
  }
  return theirs;
}

StepSlotNumber StepSlots::take(ThreadId thread) {
  const Runner runner = runner_of(thread);
  auto at = first([=](const Slot& slot) { return slot.runner == 0 && slot.last_runner == runner; });
  if (!at) at = first([](const Slot& slot) { return slot.runner == 0; });
  if (!at) {
    at = static_cast<StepSlotNumber>(slots_.size());
    slots_.emplace_back();
  }
  set_interrupted(runner, false);  // a thread that ended while it was: its number has come again
  Slot& slot = slots_[*at];
  slot.runner = slot.last_runner = runner;
  slot.begun_by = thread;
  slot.life = life_of_thread();
  ++slot.steps;
  ++running_;
  return *at;
}

void StepSlots::leave(StepSlotNumber slot) {
  slots_[slot].runner = 0;
  --running_;
}

void StepSlots::set_interrupted(Runner runner, bool interrupted) {
  interrupted_.erase(std::remove(interrupted_.begin(), interrupted_.end(), runner), interrupted_.end());
  if (interrupted) interrupted_.push_back(runner);
}

bool StepSlots::is_interrupted(Runner runner) const {
  return std::find(interrupted_.begin(), interrupted_.end(), runner) != interrupted_.end();
}

}  // namespace stowplan::allocator
