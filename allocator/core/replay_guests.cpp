// Guests of the arena, and what goes to planned places outside of the plan's order; see replay.hpp.
#include "replay.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::allocator {

// Serves as a guest of the arena, or upstream where there is no room.
Grant Replay::invite(Block& block, Reason reason) {
  if (arena().size == 0) return send_upstream(block, reason);
  const bool anywhere = plan_ == nullptr || lost_in_a_row_ >= kLost || given_up();
  std::uintptr_t address = 0;
  if (!anywhere && block.located != kNoRequest && plan_->lasting(block.located)) {
    const RequestNumber end = plan_->end[block.located];
    address = space_.highest(block.size, [&](Range r) { return !wanted(r, end); });
  } else {
    const RequestNumber soon = cursor_ + kHorizon;
    address = space_.best_fit(block.size, [&](Range r) { return anywhere || !wanted(r, soon); });
  }
  if (address == 0) return send_upstream(block, reason);
  ++counters_.guests;
  return take_in(block, address, reason);
}

// The planned address of a request larger than planned, where nothing lives in the range that it needs; 0 elsewhere.
std::uintptr_t Replay::place_beyond(RequestNumber k, Bytes size) {
  if (k == kNoRequest || plan_->offset[k] == kUnplanned || given_up()) return 0;
  const std::uintptr_t begin = space_.address_at(plan_->offset[k]);
  return space_.is_free(begin, size) ? begin : 0;
}

// The planned address of the same line in another iteration, where nothing lives in the range that the request needs; or 0.
std::uintptr_t Replay::place_elsewhere(RequestNumber k, Bytes size) {
  if (k == kNoRequest || !plan_->merged() || plan_->offset[k] == kUnplanned || given_up()) return 0;
  auto [slot, end] = plan_->slots_like(k, size);
  for (int tries = kSlotTries; tries > 0 && slot != end && slot->requested <= kSlotSpan * size; --tries, ++slot) {
    const std::uintptr_t begin = space_.address_at(slot->offset);
    if (!space_.is_free(begin, size)) continue;
    ++counters_.elsewhere;
    return begin;
  }
  return 0;
}

// Places a block of which the plan does not know that it is there.
Grant Replay::take_in(Block& block, std::uintptr_t address, Reason reason) {
  const BlockId id = space_.put_beside(block, address);
  ++counters_.of(reason);
  return {address, id, static_cast<std::uint8_t>(reason)};
}

// Whether the plan needs the range before request `until`.
bool Replay::wanted(Range r, RequestNumber until) const {
  const auto end = static_cast<RequestNumber>(std::min<std::size_t>(plan_->size(), until));
  return plan_->needs(space_.offset_of(r.begin), space_.offset_of(r.end), cursor_, end);
}

}  // namespace stowplan::allocator
