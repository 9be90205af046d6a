#include "merged_follower.hpp"

#include <algorithm>

#include "guests.hpp"
#include "replay.hpp"

namespace stowplan::allocator {

RequestNumber MergedFollower::find(Bytes size) {
  const RequestNumber found = locator_.locate(at_.plan(), size);
  if (found == kNoRequest) return kNoRequest;
  if (found != at_.next()) travel_to(found);
  if (size < at_.plan().requested[found]) ++counters_.smaller;
  return at_.pass();
}

void MergedFollower::travel_to(RequestNumber k) {
  const RequestNumber next = at_.next();
  if (k < next) {
    travelled_ += next - k;
    at_.go_back_to(k);
  } else {
    travelled_ += k - next;
    counters_.missing += k - next;
    at_.skip_to(k);
  }
}

std::uintptr_t MergedFollower::place_elsewhere(RequestNumber k, Bytes size) {
  const Plan& plan = at_.plan();
  if (plan.offset[k] == kUnplanned) return 0;
  if (!fits(k, size)) {
    const std::uintptr_t own = space_.address_at(plan.offset[k]);
    if (space_.is_free(own, size)) return own;
  }
  auto [slot, end] = plan.slots_like(k, size);
  for (int tries = kSlotTries; tries > 0 && slot != end && slot->requested <= kSlotSpan * size; --tries, ++slot) {
    const std::uintptr_t address = space_.address_at(slot->offset);
    if (!space_.is_free(address, size)) continue;
    ++counters_.elsewhere;
    return address;
  }
  return 0;
}

std::uintptr_t MergedFollower::place_guest(const Block& guest) const {
  const Plan& plan = at_.plan();
  if (guest.located != kNoRequest && plan.lasting(guest.located)) {
    return space_.highest(guest.size, [&](Range r) { return !needs(r, plan.end[guest.located]); });
  }
  return space_.best_fit(guest.size, [&](Range r) { return !needs(r, at_.next() + Guests::kHorizon); });
}

// Whether the plan needs the range before request `until`.
bool MergedFollower::needs(Range r, RequestNumber until) const {
  const RequestNumber end = std::min(at_.end(), until);
  return at_.plan().needs_by_part(space_.offset_of(r.begin), space_.offset_of(r.end), at_.next(), end);
}

}  // namespace stowplan::allocator
