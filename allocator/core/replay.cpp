#include "replay.hpp"

#include <algorithm>
#include <utility>

#include "invariants.hpp"

namespace stowplan::allocator {

Replay::Replay(Bytes unit, Shared& shared, LaneNumber lane)
    : blocks_(shared.blocks), counters_(shared.counters), space_(unit, *this, shared.blocks, shared.counters), lane_(lane) {}

// ---------------------------------------------------------------------------------------------------- requests

Grant Replay::request(Bytes size, Stream stream) {
  Block block;
  block.size = size;
  block.stream = stream;
  block.lane = this;
  counters_.live_bytes += size;
  block.birth = recorder_.allocate(size, stream);
  located_ = kNoRequest;
  Grant grant;
  if (plan_ == nullptr) {
    grant = invite(block, Reason::no_plan);
  } else if (const RequestNumber k = align(size); block.located = located_, k == kNoRequest) {
    clean_ = false;
    if (located_ == kNoRequest) {
      ++unknown_;
      ++lost_in_a_row_;
    }
    const bool stays = std::find(stayed_.begin(), stayed_.end(), size) != stayed_.end() && !given_up();
    if (const std::uintptr_t address = place_beyond(located_, size); address != 0) {
      grant = take_in(block, address, Reason::replayed);
    } else if (const std::uintptr_t other = place_elsewhere(located_, size); other != 0) {
      grant = take_in(block, other, Reason::replayed);
    } else {
      grant = stays ? send_upstream(block, Reason::mismatch) : invite(block, Reason::mismatch);
    }
  } else {
    lost_in_a_row_ = 0;
    grant = serve_planned(k, block);
  }
  if (grant.address != 0) counters_.note_peaks();  // else adopt() does, if there is memory for it
  return grant;
}

Grant Replay::pass_upstream(Bytes size, Stream stream, Reason reason) {
  Block block;
  block.size = size;
  block.stream = stream;
  block.lane = this;
  counters_.live_bytes += size;
  return send_upstream(block, reason);
}

Grant Replay::serve_planned(RequestNumber k, Block& block) {
  const Bytes offset = plan_->offset[k];
  if (offset == kUnplanned) return send_upstream(block, Reason::escaped);
  block.address = space_.address_at(offset);
  block.capacity = plan_->capacity[k];
  bool waits = false;
  if (const Range range = allocator::range_of(block); !space_.is_clear(range)) {
    if (!may_wait_ || !space_.take_held(range)) {
      clean_ = false;
      // A block that stands between steps would stand in another one's place in the next step, and so on for ever.
      if (plan_->wraps[k]) return send_upstream(block, Reason::late);
      const std::uintptr_t other = place_elsewhere(k, block.size);
      return other != 0 ? take_in(block, other, Reason::replayed) : invite(block, Reason::late);
    }
    waits = true;
  }
  const BlockId id = space_.put_in_slot(block, k);
  ++counters_.of(Reason::replayed);
  in_slot_[k] = id;
  return {block.address, id, static_cast<std::uint8_t>(Reason::replayed), waits};
}

Grant Replay::send_upstream(Block& block, Reason reason) {
  block.where = Where::upstream;
  block.address = 0;  // until adopt()
  block.capacity = block.size;
  counters_.upstream_bytes += block.size;
  ++counters_.of(reason);
  return {0, blocks_.insert(block), static_cast<std::uint8_t>(reason)};
}

// Takes a block out of everything, the table included; whether it was upstream's.
inline bool Replay::forget(BlockId id, Block& block) {
  const bool upstream = block.where == Where::upstream;
  if (upstream) {
    block.where = Where::nowhere;
    counters_.upstream_bytes -= block.size;
  } else {
    if (block.where == Where::slot) in_slot_[block.slot] = kNoBlock;
    space_.remove(block);
  }
  blocks_.erase(id);
  return upstream;
}

// The program is rid of a block.
inline void Replay::note_free(const Block& block) {
  recorder_.free(block.birth, block.size);
  counters_.live_bytes -= block.size;
  if (plan_ != nullptr && plan_->merged() && recorder_.is_current(block.birth)) {
    locator_.freed(*plan_, block.located, recorder_.requests() - block.birth.request);
  }
}

bool Replay::release(BlockId id) {
  Block& block = blocks_[id];
  if (block.where == Where::late && recorder_.age(block.birth) > 1) note_stay(block.size);
  note_free(block);
  return forget(id, block);
}

// Remembers the last few sizes of blocks that stood in the way of a whole step.
void Replay::note_stay(Bytes size) {
  if (std::find(stayed_.begin(), stayed_.end(), size) != stayed_.end()) return;
  if (stayed_.size() >= kStayed) stayed_.erase(stayed_.begin());
  stayed_.push_back(size);
}

void Replay::hold(BlockId id, bool may_wait) {
  Block& block = blocks_[id];
  note_free(block);
  if (block.where == Where::slot) make_late(id);
  space_.hold(id, may_wait);
}

bool Replay::let_go(BlockId id) {
  Block& block = blocks_[id];
  if (block.where == Where::nowhere) return false;  // awaited
  space_.forget_held(id);
  return forget(id, block);
}

// ------------------------------------------------------------------------------------------------------- steps

void Replay::begin_step(PlanPtr plan, std::vector<PlanPtr> others) {
  const auto too_large = [this](const PlanPtr& p) { return p->arena_bytes > arena().size; };
  others.erase(std::remove_if(others.begin(), others.end(), too_large), others.end());
  if (plan != nullptr && too_large(plan)) plan = nullptr;
  others_ = std::move(others);
  const bool second = std::exchange(halfway_, false) && plan != nullptr && plan == plan_;
  follow(std::move(plan));
  cursor_ = began_ = second ? plan_->half : 0;
  unknown_ = 0;
  lost_in_a_row_ = 0;
  if (plan_ == nullptr || !plan_->merged()) space_.drop_free_ranges();
  exact_so_far_ = plan_ == nullptr || !plan_->merged();
  travelled_ = 0;
  locator_.begin();
  alignment_ = Alignment::exact;
  clean_ = plan_ != nullptr && !plan_->merged();
  recorder_.begin_step();
}

Replay::Course Replay::course(Bytes next) const {
  if (!in_step() || plan_ == nullptr || !exact_so_far_ || cursor_ == began_) return Course::unknown;
  const auto other = [&](const PlanPtr& plan) { return goes_on(*plan, next); };
  if (equals(cursor_, next) || std::any_of(others_.begin(), others_.end(), other)) return Course::goes_on;
  return cursor_ == plan_->size() ? Course::is_over : Course::unknown;
}

StepOutcome Replay::end_step() {
  StepOutcome outcome = leave_plan();
  if (clean_ && !recorder_.timestamps()) {
    recorder_.drop_step();
  } else {
    outcome.complete = !recorder_.truncated();
    outcome.log = recorder_.end_step();
  }
  return outcome;
}

void Replay::join(const PlanPtr& plan) {
  if (!in_step() || plan_ != nullptr || plan->merged() || plan->arena_bytes > arena().size) return;
  if (!recorder_.has_requested(plan->requested)) return;
  follow(plan);
  cursor_ = recorder_.requests();
  clean_ = true;
}

std::pair<StepOutcome, StepOutcome> Replay::end_two_steps(RequestNumber first, RequestNumber second) {
  leave_plan();
  const bool complete = !recorder_.truncated();
  auto logs = recorder_.end_two_steps(first, second);
  return {{std::move(logs.first), complete, false, 0}, {std::move(logs.second), complete, false, 0}};
}

// The outcome of the running step, but for its log.
StepOutcome Replay::leave_plan() {
  StepOutcome outcome;
  if (plan_ != nullptr) {
    if (cursor_ < plan_->size() && exact_so_far_) follow_shorter();
    const auto n = static_cast<RequestNumber>(plan_->size());
    halfway_ = cursor_ <= plan_->half && began_ < plan_->half;
    const RequestNumber end = halfway_ ? plan_->half : n;
    if (cursor_ < end) {
      counters_.missing += end - cursor_;
      clean_ = false;
    }
    skip_to(end);
    if (!halfway_) process_due(n);  // freed after the last request
  }
  outcome.clean = clean_;
  outcome.tag = plan_ == nullptr ? 0 : plan_->tag;
  return outcome;
}

bool Replay::retire_idle_arena() {
  if (!space_.retire_idle()) return false;
  others_.clear();
  follow(nullptr);
  clean_ = false;
  return true;
}

// --------------------------------------------------------------------------------------------------- diagnosis

LiveBlock Replay::describe(const Block& block) const {
  LiveBlock described{block.size, block.stream, recorder_.age(block.birth), block.birth.request, lane_};
  if (block.held) {
    described.place = Place::held;
  } else if (block.where == Where::late) {
    described.place = Place::late;
  } else if (block.where == Where::slot) {
    described.place = Place::planned;
    described.slot = block.slot;
    described.tag = plan_->tag;
  }
  return described;
}

// -------------------------------------------------------------------------------------------------- invariants

void Replay::assert_invariants() const {
  space_.assert_invariants();
  for (BlockId id = 0; id < blocks_.extent(); ++id) {
    const Block& block = blocks_[id];
    if (block.lane == this && block.where == Where::slot) require(in_slot_[block.slot] == id, "a slot knows its block");
  }
}

}  // namespace stowplan::allocator
