#include "plan_cursor.hpp"

#include "invariants.hpp"

namespace stowplan::allocator {

void PlanCursor::begin_step(PlanPtr plan) {
  const RequestNumber goes_on_at = std::exchange(goes_on_at_, 0);
  const bool goes_on = plan != nullptr && plan == plan_;
  follow(std::move(plan));
  next_ = began_ = goes_on ? goes_on_at : 0;
  skipped_ = false;
}

void PlanCursor::follow(PlanPtr plan) {
  if (plan == plan_) return;
  std::vector<BlockId> slots(plan == nullptr ? 0 : plan->size(), kNoBlock);  // where that fails, nothing has changed
  for (RequestNumber k = 0; k < in_slot_.size(); ++k) make_late(k);
  plan_ = std::move(plan);
  next_ -= std::exchange(began_, 0);
  in_slot_ = std::move(slots);
}

RequestNumber PlanCursor::end_step() {
  RequestNumber last = step_end();
  while (last < next_) last += plan_->step_length;  // it has had some of its successor's requests
  const RequestNumber missing = last - next_;
  skip_to(last);
  goes_on_at_ = last < end() ? last : 0;
  if (last == end()) make_due_late(last);  // freed after the last request
  return missing;
}

void PlanCursor::skip_to(RequestNumber k) {
  if (next_ < k) skipped_ = true;
  for (; next_ < k; ++next_) make_due_late(next_);
}

void PlanCursor::assert_invariants() const {
  std::size_t occupied = 0;
  for (RequestNumber k = 0; k < in_slot_.size(); ++k) {
    if (in_slot_[k] == kNoBlock) continue;
    const Block& block = space_.block(in_slot_[k]);
    require(block.where == Where::slot && block.slot == k, "the block in a slot knows that it is there");
    ++occupied;
  }
  require(occupied == space_.count(Where::slot), "no other block is in a slot");
}

}  // namespace stowplan::allocator
