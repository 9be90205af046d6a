#include "replay.hpp"

#include <algorithm>
#include <utility>

#include "invariants.hpp"

namespace stowplan::allocator {

Replay::Replay(Bytes unit, Shared& shared, LaneNumber lane)
    : blocks_(shared.blocks), counters_(shared.counters), arenas_(1), unit_(unit), lane_(lane) {}

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
  Arena& arena = arenas_.back();
  block.address = arena.base + static_cast<std::uintptr_t>(offset);
  block.capacity = plan_->capacity[k];
  bool waits = false;
  const Range range{block.address, block.address + static_cast<std::uintptr_t>(block.capacity)};
  if (is_in_the_way(range)) {
    if (!may_wait_ || !take_held(range)) {
      clean_ = false;
      // A block that stands between steps would stand in another one's place in the next step, and so on for ever.
      if (plan_->wraps[k]) return send_upstream(block, Reason::late);
      const std::uintptr_t other = place_elsewhere(k, block.size);
      return other != 0 ? take_in(block, other, Reason::replayed) : invite(block, Reason::late);
    }
    waits = true;
  }
  if (free_) free_->take(range);
  block.where = Where::slot;
  block.slot = k;
  block.arena = static_cast<std::uint32_t>(arenas_.size() - 1);
  ++arena.live;
  ++counters_.of(Reason::replayed);
  const BlockId id = blocks_.insert(block);
  in_slot_[k] = id;
  return {block.address, id, static_cast<std::uint8_t>(Reason::replayed), waits};
}

// Whether what the plan does not know of, or knew to be gone by now, stands there.
inline bool Replay::is_in_the_way(Range r) const {
  return free_ ? !free_->contains(r) : !late_.empty() && late_.intersects(r);
}

// Whether nothing but held blocks stands in the way; then it is let go of, and awaited.
bool Replay::take_held(Range r) {
  const auto in_the_way = std::stable_partition(held_.begin(), held_.end(),
                                                [&](BlockId id) { return !range_of(id).intersects(r); });
  for (auto at = in_the_way; at != held_.end(); ++at) {
    const Range held = range_of(*at);
    free_ ? free_->give(held) : late_.erase(held.begin);
  }
  const bool only_held = !is_in_the_way(r);
  for (auto at = in_the_way; at != held_.end(); ++at) {
    const Range held = range_of(*at);
    free_ ? free_->take(held) : late_.insert(held);
  }
  if (!only_held) return false;
  awaited_.insert(awaited_.end(), in_the_way, held_.end());
  for (auto at = in_the_way; at != held_.end(); ++at) displace(*at, blocks_[*at]);
  held_.erase(in_the_way, held_.end());
  return true;
}

Grant Replay::send_upstream(Block& block, Reason reason) {
  block.where = Where::upstream;
  block.address = 0;  // until adopt()
  block.capacity = block.size;
  counters_.upstream_bytes += block.size;
  ++counters_.of(reason);
  return {0, blocks_.insert(block), static_cast<std::uint8_t>(reason)};
}

// Takes a block out of everything but the table; whether it was upstream's.
inline bool Replay::displace(BlockId id, Block& block) {
  const Where where = std::exchange(block.where, Where::nowhere);
  if (where == Where::upstream) {
    counters_.upstream_bytes -= block.size;
    return true;
  }
  if (where == Where::slot) {
    in_slot_[block.slot] = kNoBlock;
  } else if (!free_) {
    late_.erase(block.address);
  }
  --arenas_[block.arena].live;
  if (free_ && in_current_arena(block)) free_->give(range_of(id));
  return false;
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
  const bool upstream = displace(id, block);
  blocks_.erase(id);
  return upstream;
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
  block.held = true;
  if (may_wait && block.where == Where::late && in_current_arena(block)) held_.push_back(id);
}

bool Replay::let_go(BlockId id) {
  Block& block = blocks_[id];
  if (block.where == Where::nowhere) return false;  // awaited
  held_.erase(std::remove(held_.begin(), held_.end(), id), held_.end());
  const bool upstream = displace(id, block);
  blocks_.erase(id);
  return upstream;
}

void Replay::drop_awaited() {
  for (const BlockId id : awaited_) blocks_.erase(id);
  awaited_.clear();
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
  if (plan_ == nullptr || !plan_->merged()) drop_free_ranges();
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

void Replay::reserve(std::uintptr_t base, Bytes size) {
  if (Arena& arena = arenas_.back(); arena.base == base) {
    counters_.arena_bytes += size - arena.size;
    arena.size = size;
  } else {
    arenas_.push_back({base, size, 0});
    counters_.arena_bytes += size;
    held_.clear();  // of another arena now: late to nobody who asks
  }
  drop_free_ranges();
  counters_.note_peaks();
}

bool Replay::retire_idle_arena() {
  if (arenas_.back().base == 0 || arenas_.back().live != 0) return false;
  arenas_.push_back(Arena{});
  held_.clear();
  others_.clear();
  follow(nullptr);
  drop_free_ranges();
  clean_ = false;
  return true;
}

std::vector<std::uintptr_t> Replay::take_dead_arenas() {
  std::vector<std::uintptr_t> dead;
  // Blocks name their arena by index, so entries stay; a dead one has base 0.
  for (std::size_t i = 0; i + 1 < arenas_.size(); ++i) {
    Arena& arena = arenas_[i];
    if (arena.base == 0 || arena.live != 0) continue;
    dead.push_back(arena.base);
    counters_.arena_bytes -= arena.size;
    arena = Arena{};
  }
  return dead;
}

bool Replay::has_retired_arenas() const {
  return std::any_of(arenas_.begin(), arenas_.end() - 1, [](const Arena& arena) { return arena.base != 0; });
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

Range Replay::range_of(BlockId id) const {
  const Block& block = blocks_[id];
  return {block.address, block.address + static_cast<std::uintptr_t>(block.capacity)};
}

void Replay::assert_invariants() const {
  std::vector<std::uint32_t> live_in(arenas_.size());
  std::size_t late = 0;
  std::uintptr_t taken = 0;
  for (BlockId id = 0; id < blocks_.extent(); ++id) {
    const Block& block = blocks_[id];
    if (block.lane != this || block.where == Where::nowhere || block.where == Where::upstream) continue;
    const Arena& arena = arenas_[block.arena];
    ++live_in[block.arena];
    require(arena.base <= block.address && range_of(id).end <= arena.base + static_cast<std::uintptr_t>(arena.size),
            "a block served from the plan lies in its arena");
    if (block.where == Where::slot) {
      require(in_slot_[block.slot] == id, "a slot knows its block");
    } else {
      ++late;
      require(free_ || late_.intersects(range_of(id)), "a late block stands in the late set");
    }
    if (!free_ || !in_current_arena(block)) continue;
    taken += static_cast<std::uintptr_t>(block.capacity);
    require(free_->is_taken(range_of(id)), "no range in which a block lives is free");
  }
  require(late_.size() == (free_ ? 0 : late), "the late set holds the late blocks and no others, unless the free ranges tell");
  require(!free_ || free_->taken() == taken, "everything else is free");
  require(!free_ || free_->are_consistent(), "the free ranges in order are those that the bits tell of");
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    require(live_in[i] == arenas_[i].live, "an arena counts its live blocks");
  }
  for (const BlockId id : held_) {
    require(blocks_[id].held && blocks_[id].where == Where::late, "what may be waited for is held, in the arena");
  }
}

}  // namespace stowplan::allocator
