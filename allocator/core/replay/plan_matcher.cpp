#include "plan_matcher.hpp"

#include <algorithm>

#include "guests.hpp"
#include "replay.hpp"

namespace stowplan::allocator {

// --------------------------------------------------------------------------------------------- resynchronization

// The named slow path of find(): the request is not the one that the cursor expects.
RequestNumber PlanMatcher::resynchronize(Bytes size) {
  before_ = std::exchange(now_, {size, Match::lost, false});
  const RequestNumber next = at_.next();
  const Match before = before_.last;
  RequestNumber found = find_both(before_.previous, size, before);
  if (found != kNoRequest) {
    counters_.missing += found - next - (before == Match::lost ? 1 : 0);
    now_.last = Match::exact;
  } else if (before == Match::tentative && !at_.fits(next, size) && at_.equals(next - 1, size)) {
    now_.last = Match::exact;  // the previous one was extra, and sits in this one's slot
  } else if (before == Match::lost && at_.fits(next + 1, size)) {
    found = next + 1;  // most likely the previous one had come in the place of k
  } else if (at_.fits(next, size) && !(before == Match::exact && 2 * size < at_.plan().requested[next])) {
    found = next;
  }
  if (found == kNoRequest) return kNoRequest;
  if (now_.last == Match::lost) {
    ++counters_.smaller;
    now_.last = Match::tentative;
  }
  at_.skip_to(found);
  return at_.pass();
}

// Where two requests in a row, the previous one and this, stand next to each other in the plan a little ahead.
RequestNumber PlanMatcher::find_both(Bytes previous, Bytes size, Match before) const {
  if (before == Match::exact) return kNoRequest;
  const RequestNumber next = at_.next();
  if (before == Match::lost && at_.equals(next + 1, size)) return next + 1;
  const RequestNumber base = before == Match::lost ? next : next - 1;
  for (RequestNumber d = 1; d <= kWindow; ++d) {
    if (at_.equals(base + d, previous) && at_.equals(base + d + 1, size)) return base + d + 1;
  }
  return kNoRequest;
}

// ------------------------------------------------------------------------------------------------- several plans

// Follows another plan from here, if one begins as this step did, and goes on with this request.
bool PlanMatcher::follow_another(Bytes size) {
  const RequestNumber passed = at_.passed();
  for (const PlanPtr& other : others_) {
    if (passed >= other->step_size() || other->requested[passed] != size) continue;
    if (other->prefix[passed] != at_.prefix()) continue;
    at_.follow(other);
    return true;
  }
  return false;
}

// If a plan ends here that begins as this step did, then that is the plan that the step has followed.
void PlanMatcher::end_step() {
  if (!now_.exact_so_far || at_.next() == at_.step_end()) return;
  for (const PlanPtr& other : others_) {
    const RequestNumber passed = at_.passed();
    if (other->step_size() == passed && other->prefix_of(0, passed) == at_.prefix()) return at_.follow(other);
  }
}

// -------------------------------------------------------------------------------------------------------- guests

std::uintptr_t PlanMatcher::place_guest(Bytes size) const {
  const RequestNumber soon = std::min(at_.end(), at_.next() + Guests::kHorizon);
  return space_.best_fit(size, [&](Range r) {
    return !at_.plan().needs(space_.offset_of(r.begin), space_.offset_of(r.end), at_.next(), soon);
  });
}

}  // namespace stowplan::allocator
