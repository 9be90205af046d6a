#include "replay.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include "invariants.hpp"

namespace stowplan::allocator {

Replay::Replay(Bytes unit, Shared& shared, LaneNumber lane)
    : blocks_(shared.blocks),
      counters_(shared.counters),
      lane_(lane),
      space_(unit, *this, shared.blocks, shared.counters),
      matcher_(cursor_, space_, counters_) {}

// ---------------------------------------------------------------------------------------------------- requests

Grant Replay::request(Bytes size, Stream stream, bool may_wait) {
  const BlockId id = new_block(size, stream);
  const Birth birth = recorder_.allocate(size, stream < 0 ? kPerThread : stream);
  blocks_[id].birth = birth;
  try {
    const Grant grant = serve(id, may_wait);
    if (grant.address != 0) counters_.note_live(use_, size);  // else adopt() does, if there is memory for it
    return grant;
  } catch (const std::bad_alloc&) {
    recorder_.refuse(birth);
    blocks_.erase(id);
    clean_ = false;
    throw;
  }
}

Grant Replay::pass_upstream(Bytes size, Stream stream, Reason reason) {
  return send_upstream(new_block(size, stream), reason);
}

inline Grant Replay::serve(BlockId id, bool may_wait) {
  if (!cursor_.has_plan()) return serve_as_guest(id, Reason::no_plan);
  const Bytes size = blocks_[id].size;
  const RequestNumber k = has_given_up() ? kNoRequest : matcher_.find(size);
  if (k != kNoRequest) {
    guests_.note_planned();
    return serve_planned(id, k, may_wait);
  }
  guests_.note_unknown();
  if (!has_given_up() && guests_.is_known_to_last(size)) return send_upstream(id, Reason::mismatch);
  return serve_as_guest(id, Reason::mismatch);
}

// Serves a request that can have its slot, if nothing is in the way.
inline Grant Replay::serve_planned(BlockId id, RequestNumber k, bool may_wait) {
  const Plan& plan = cursor_.plan();
  if (plan.offset[k] == kUnplanned) return send_upstream(id, Reason::escaped);
  const std::uintptr_t address = space_.address_at(plan.offset[k]);
  const Range range{address, address + static_cast<std::uintptr_t>(plan.capacity[k])};
  if (!space_.has_memory(range)) return send_upstream(id, Reason::unmapped);  // the step is as planned, still
  const bool waits = !space_.is_clear(range);
  if (waits && !(may_wait && space_.take_held(range))) {
    clean_ = false;
    // A displaced wrapped block would displace another one in every later step.
    return plan.wraps[k] ? send_upstream(id, Reason::late) : serve_as_guest(id, Reason::late);
  }
  space_.put_in_slot(id, range, k);
  cursor_.put(k, id);
  ++counters_.of(Reason::replayed);
  return {address, id, static_cast<std::uint8_t>(Reason::replayed), waits};
}

// Serves as a guest of the arena, or upstream if there is no room.
Grant Replay::serve_as_guest(BlockId id, Reason reason) {
  if (!has_guests_ || arena().mapped == 0) return send_upstream(id, reason);
  const Bytes size = blocks_[id].size;
  const bool anywhere = !cursor_.has_plan() || guests_.are_lost() || has_given_up();
  const std::uintptr_t address =
      anywhere ? space_.best_fit(size, [](Range) { return true; }) : matcher_.place_guest(size);
  if (address == 0) return send_upstream(id, reason);
  space_.put_beside(id, address);
  ++counters_.guests;
  ++counters_.of(reason);
  return {address, id, static_cast<std::uint8_t>(reason)};
}

Grant Replay::send_upstream(BlockId id, Reason reason) {
  blocks_[id].where = Where::upstream;  // its address is 0, until adopt()
  blocks_[id].capacity = blocks_[id].size;
  ++counters_.of(reason);
  return {0, id, static_cast<std::uint8_t>(reason)};
}

bool Replay::serve_from_holes(BlockId id, Reason reason) {
  constexpr Reason kOwn[] = {Reason::no_plan, Reason::escaped, Reason::unmapped, Reason::late, Reason::mismatch};
  const bool is_own = std::find(std::begin(kOwn), std::end(kOwn), reason) != std::end(kOwn);
  if (!is_own || !has_guests_ || !in_step() || arena().mapped == 0) return false;
  Block& block = blocks_[id];
  const std::uintptr_t address = space_.best_fit(block.size, [](Range) { return true; });
  if (address == 0) return false;
  ++counters_.guests;
  space_.put_beside(id, address);
  counters_.note_live(block.use, block.size);
  return true;
}

// ------------------------------------------------------------------------------------------------------- frees

// The program is rid of a block.
inline void Replay::note_free(const Block& block) {
  recorder_.free(block.birth);
  if (!block.is_unanswered()) counters_.note_dead(block.use, block.size);
}

// Takes a block out of everything, the table included; whether it was upstream's.
inline bool Replay::forget(BlockId id, Block& block) {
  const bool upstream = block.where == Where::upstream;
  if (upstream) {
    if (!block.is_unanswered()) counters_.upstream_bytes -= block.size;
    block.where = Where::nowhere;
  } else {
    if (block.where == Where::slot) cursor_.clear(block.slot);
    space_.remove(block);
  }
  blocks_.erase(id);
  return upstream;
}

bool Replay::release(BlockId id) {
  Block& block = blocks_[id];
  if (block.where == Where::late && recorder_.age(block.birth) > 1) guests_.note_lasting(block.size);
  note_free(block);
  return forget(id, block);
}

void Replay::refuse(BlockId id) {
  Block& block = blocks_[id];
  if (cursor_.has_plan() && recorder_.is_last(block.birth)) {
    if (matcher_.take_back()) {
      guests_.take_back();
    } else {
      clean_ = false;
    }
  }
  recorder_.refuse(std::exchange(block.birth, {}));
}

void Replay::hold(BlockId id, bool may_wait) {
  const Block& block = blocks_[id];
  note_free(block);
  if (block.where == Where::slot) cursor_.make_late(block.slot);
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
  if (in_step()) end_step();  // there was no memory to tell of its end
  if (plan != nullptr && is_too_large(*plan)) plan = nullptr;
  cursor_.begin_step(std::move(plan));
  const auto unfit = [this](const PlanPtr& other) { return is_too_large(*other); };
  others.erase(std::remove_if(others.begin(), others.end(), unfit), others.end());
  matcher_.begin_step(std::move(others));
  space_.drop_free_ranges();
  clean_ = cursor_.has_plan();
  guests_.begin_step();
  recorder_.begin_step();
}

StepOutcome Replay::end_step() {
  StepOutcome outcome;
  if (cursor_.has_plan()) {
    matcher_.end_step();
    counters_.missing += cursor_.end_step();
    if (cursor_.has_skipped()) clean_ = false;
    outcome.tag = cursor_.plan().tag;
  }
  outcome.clean = is_clean();
  if (outcome.clean && !recorder_.timestamps()) {
    recorder_.drop_step();
  } else {
    try {
      outcome.complete = !recorder_.truncated();
      outcome.log = recorder_.end_step();
    } catch (const std::bad_alloc&) {
      outcome.complete = false;
      recorder_.drop_step();
    }
  }
  return outcome;
}

bool Replay::retire_idle_arena() {
  if (!space_.retire_idle()) return false;
  cursor_.follow(nullptr);
  matcher_.begin_step({});
  clean_ = false;
  return true;
}

// --------------------------------------------------------------------------------------------------- diagnosis

LiveBlock Replay::describe(const Block& block) const {
  LiveBlock described{block.size, block.stream, recorder_.age(block.birth), block.birth.request, lane_};
  if (block.held) {
    described.place = "held";
  } else if (block.where == Where::late) {
    described.place = "late";
  } else if (block.where == Where::slot) {
    described.place = "planned";
    described.slot = block.slot;
    described.tag = cursor_.plan().tag;
  }
  return described;
}

// -------------------------------------------------------------------------------------------------- invariants

void Replay::assert_invariants() const {
  space_.assert_invariants();
  cursor_.assert_invariants();
}

}  // namespace stowplan::allocator
