// Guests of the arena, and what goes to planned places outside of the plan's order; see replay.hpp.
#include "replay.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::allocator {

// Serves as a guest of the arena, or upstream where there is no room.
Grant Replay::invite(Block& block, Reason reason) {
  if (arenas_.back().size == 0) return send_upstream(block, reason);
  if (!free_) find_free_ranges();
  const bool anywhere = plan_ == nullptr || lost_in_a_row_ >= kLost || given_up();
  const auto bytes = static_cast<std::uintptr_t>(rounded(block.size));
  std::uintptr_t address = 0;
  if (!anywhere && block.located != kNoRequest && plan_->lasting(block.located)) {
    const RequestNumber end = plan_->end[block.located];
    address = free_->highest(bytes, kRangeTries, [&](Range r) { return !wanted(r, end); });
  } else {
    const RequestNumber soon = cursor_ + kHorizon;
    address = free_->best_fit(bytes, kRangeTries, [&](Range r) { return anywhere || !wanted(r, soon); });
  }
  if (address == 0) return send_upstream(block, reason);
  ++counters_.guests;
  return take_in(block, address, reason);
}

// The planned address of a request larger than planned, where nothing lives in the range that it needs; 0 elsewhere.
std::uintptr_t Replay::place_beyond(RequestNumber k, Bytes size) {
  if (k == kNoRequest || plan_->offset[k] == kUnplanned || given_up()) return 0;
  if (!free_) find_free_ranges();
  const std::uintptr_t begin = arenas_.back().base + static_cast<std::uintptr_t>(plan_->offset[k]);
  return free_->contains({begin, begin + static_cast<std::uintptr_t>(rounded(size))}) ? begin : 0;
}

// The planned address of the same line in another iteration, where nothing lives in the range that the request needs; or 0.
std::uintptr_t Replay::place_elsewhere(RequestNumber k, Bytes size) {
  if (k == kNoRequest || !plan_->merged() || plan_->offset[k] == kUnplanned || given_up()) return 0;
  if (!free_) find_free_ranges();
  const auto bytes = static_cast<std::uintptr_t>(rounded(size));
  const std::uintptr_t base = arenas_.back().base;
  auto [slot, end] = plan_->slots_like(k, size);
  for (int tries = kSlotTries; tries > 0 && slot != end && slot->requested <= kSlotSpan * size; --tries, ++slot) {
    const std::uintptr_t begin = base + static_cast<std::uintptr_t>(slot->offset);
    if (!free_->contains({begin, begin + bytes})) continue;
    ++counters_.elsewhere;
    return begin;
  }
  return 0;
}

// Places a block of which the plan does not know that it is there.
Grant Replay::take_in(Block& block, std::uintptr_t address, Reason reason) {
  block.address = address;
  block.capacity = rounded(block.size);
  block.where = Where::late;
  block.slot = kNoRequest;
  block.arena = static_cast<std::uint32_t>(arenas_.size() - 1);
  ++arenas_.back().live;
  ++counters_.of(reason);
  const BlockId id = blocks_.insert(block);
  free_->take(range_of(id));
  return {address, id, static_cast<std::uint8_t>(reason)};
}

// Whether the plan needs the range before request `until`.
bool Replay::wanted(Range r, RequestNumber until) const {
  const auto base = static_cast<Bytes>(arenas_.back().base);
  const auto end = static_cast<RequestNumber>(std::min<std::size_t>(plan_->size(), until));
  return plan_->needs(static_cast<Bytes>(r.begin) - base, static_cast<Bytes>(r.end) - base, cursor_, end);
}

void Replay::find_free_ranges() {
  const Arena& arena = arenas_.back();
  const auto unit = static_cast<std::uintptr_t>(unit_);
  FreeRanges free({arena.base, arena.base + static_cast<std::uintptr_t>(arena.size) / unit * unit}, unit);
  for (BlockId id = 0; id < blocks_.extent(); ++id) {
    const Block& block = blocks_[id];
    const bool in_arena = block.where == Where::slot || block.where == Where::late;
    if (in_arena && block.lane == this && in_current_arena(block)) free.take(range_of(id));
  }
  free_.emplace(std::move(free));
  late_.clear();
}

void Replay::drop_free_ranges() {
  if (!free_) return;
  RangeSet late;
  for (BlockId id = 0; id < blocks_.extent(); ++id) {
    const Block& block = blocks_[id];
    if (block.where == Where::late && block.lane == this) late.insert(range_of(id));
  }
  late_ = std::move(late);
  free_.reset();
}

}  // namespace stowplan::allocator
