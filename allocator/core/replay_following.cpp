// Keeping in step with the plan, or finding another one; see replay.hpp.
#include "replay.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::allocator {

// The plan's request that this one is, or kNoRequest. Moves the cursor past it.
RequestNumber Replay::align(Bytes size) {
  if (given_up()) return kNoRequest;
  if (plan_->merged()) return track(size);
  if (!equals(cursor_, size)) {
    if (!exact_so_far_ || !follow_another(size)) return resynchronize(size);
  }
  alignment_ = Alignment::exact;
  process_due(cursor_);
  return cursor_++;
}

// The same for a merged plan.
RequestNumber Replay::track(Bytes size) {
  located_ = locator_.locate(*plan_, size);
  if (located_ == kNoRequest) return kNoRequest;
  if (located_ < cursor_) {
    go_back_to(located_);
  } else {
    counters_.missing += located_ - cursor_;
    skip_to(located_);
  }
  process_due(cursor_);
  const RequestNumber k = cursor_++;
  if (!fits(k, size)) return kNoRequest;
  if (size < plan_->requested[k]) ++counters_.smaller;
  return k;
}

// Whether another plan begins as this step did, and goes on with this request. A merged plan is followed from the start.
bool Replay::goes_on(const Plan& other, Bytes size) const {
  const RequestNumber done = cursor_ - began_;
  return !other.merged() && done < other.size() && other.requested[done] == size &&
         other.prefix[done] == plan_->prefix[cursor_];
}

// Follows such a plan from here, if there is one.
bool Replay::follow_another(Bytes size) {
  for (const PlanPtr& other : others_) {
    if (goes_on(*other, size)) {
      follow(other);
      return true;
    }
  }
  return false;
}

// At the end of the step: whether another plan is what this step was, from its first request to its last.
bool Replay::follow_shorter() {
  for (const PlanPtr& other : others_) {
    const RequestNumber done = cursor_ - began_;
    if (!other->merged() && other->size() == done && other->prefix[done] == plan_->prefix[cursor_]) {
      follow(other);
      return true;
    }
  }
  return false;
}

// Makes `plan` the one that is followed; what lives in the slots of the former one is late to it.
void Replay::follow(PlanPtr plan) {
  if (plan == plan_) return;
  for (const BlockId id : in_slot_) {
    if (id != kNoBlock) make_late(id);
  }
  plan_ = std::move(plan);
  cursor_ -= std::exchange(began_, 0);
  in_slot_.assign(plan_ == nullptr ? 0 : plan_->size(), kNoBlock);
}

// The named slow path of align(): the request is not the one that the cursor expects.
RequestNumber Replay::resynchronize(Bytes size) {
  exact_so_far_ = false;
  const Bytes previous = std::exchange(previous_, size);
  const Alignment before = std::exchange(alignment_, Alignment::lost);
  RequestNumber at = realign(size, previous, before);
  if (at != kNoRequest) {
    counters_.missing += at - cursor_ - (before == Alignment::lost ? 1 : 0);
    clean_ = false;
    alignment_ = Alignment::exact;
  } else if (before == Alignment::tentative && !fits(cursor_, size) && equals(cursor_ - 1, size)) {
    alignment_ = Alignment::exact;  // the previous one was extra, and sits in this one's slot
  } else if (before == Alignment::lost && fits(cursor_ + 1, size)) {
    at = cursor_ + 1;  // most likely the previous one had come in the place of k
  } else if (fits(cursor_, size) && !(before == Alignment::exact && 2 * size < plan_->requested[cursor_])) {
    at = cursor_;
  }
  if (at != kNoRequest && alignment_ == Alignment::lost) {
    ++counters_.smaller;
    alignment_ = Alignment::tentative;
  }
  if (at == kNoRequest) return kNoRequest;
  skip_to(at);
  process_due(at);
  cursor_ = at + 1;
  return at;
}

// Where two requests in a row, the previous one and this, stand next to each other in the plan a little ahead.
RequestNumber Replay::realign(Bytes size, Bytes previous, Alignment before) const {
  if (before == Alignment::exact) return kNoRequest;
  if (before == Alignment::lost && equals(cursor_ + 1, size)) return cursor_ + 1;
  const RequestNumber base = before == Alignment::lost ? cursor_ : cursor_ - 1;
  for (RequestNumber d = 1; d <= kWindow; ++d) {
    if (equals(base + d, previous) && equals(base + d + 1, size)) return base + d + 1;
  }
  return kNoRequest;
}

// Passes over requests that are not coming: what was due at them is due all the same.
void Replay::skip_to(RequestNumber k) {
  travelled_ += k - cursor_;
  for (; cursor_ < k; ++cursor_) process_due(cursor_);
}

// What was due between stays late; what sits in the slots between came after k, and the plan does not know of it at k.
void Replay::go_back_to(RequestNumber k) {
  travelled_ += cursor_ - k;
  for (; cursor_ > k; --cursor_) {
    if (const BlockId id = in_slot_[cursor_ - 1]; id != kNoBlock) make_late(id);
  }
}

void Replay::process_due(RequestNumber k) {
  for (std::uint32_t i = plan_->due_begin[k]; i < plan_->due_begin[k + 1]; ++i) {
    const BlockId id = in_slot_[plan_->due[i]];
    if (id != kNoBlock) make_late(id);
  }
}

void Replay::make_late(BlockId id) {
  const RequestNumber slot = blocks_[id].slot;
  space_.make_late(id);
  in_slot_[slot] = kNoBlock;
}

}  // namespace stowplan::allocator
