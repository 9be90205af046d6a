#include "arena_space.hpp"

#include <algorithm>

#include "invariants.hpp"
#include "replay.hpp"

namespace stowplan::allocator {

ArenaSpace::ArenaSpace(Bytes unit, const Replay& lane, Blocks& blocks, Counters& counters)
    : unit_(unit), lane_(lane), blocks_(blocks), counters_(counters), arenas_(1) {}

// The lane's blocks in its arenas, retired ones too.
template <class Visit>
void ArenaSpace::each_block(Visit&& visit) const {
  for (BlockId id = 0; id < blocks_.extent(); ++id) {
    const Block& block = blocks_[id];
    const bool in_arena = block.where == Where::slot || block.where == Where::late;
    if (in_arena && block.lane == &lane_) visit(block);
  }
}

// ------------------------------------------------------------------------------------------------------ arenas

void ArenaSpace::reserve(std::uintptr_t base, Bytes size, const std::vector<Range>& memory) {
  if (arenas_.back().base != base) {
    arenas_.emplace_back();
    arenas_.back().base = base;
    held_.clear();  // of another arena now: no request finds them in its way
  }
  Arena& arena = arenas_.back();
  counters_.arena_bytes -= arena.mapped;
  arena.size = size;
  arena.range = {base, base};
  arena.holes.clear();
  arena.mapped = 0;
  for (const Range run : memory) {
    if (arena.mapped == 0) arena.range.begin = run.begin;
    if (arena.mapped > 0) arena.holes.push_back({arena.range.end, run.begin});
    arena.range.end = run.end;
    arena.mapped += static_cast<Bytes>(run.end - run.begin);
  }
  counters_.arena_bytes += arena.mapped;
  drop_free_ranges();
  counters_.note_peaks();
}

// The ranges in which nothing lives, which have no memory from now on.
std::vector<Range> ArenaSpace::withdraw_idle() {
  std::vector<Range> idle = free_ranges().all();
  std::vector<Range>& holes = arenas_.back().holes;
  holes.insert(holes.end(), idle.begin(), idle.end());
  drop_free_ranges();
  return idle;
}

bool ArenaSpace::retire_idle() {
  if (arenas_.back().base == 0 || arenas_.back().live != 0) return false;
  arenas_.push_back(Arena{});
  held_.clear();
  drop_free_ranges();
  return true;
}

std::vector<std::uintptr_t> ArenaSpace::take_dead() {
  std::vector<std::uintptr_t> dead;
  // Blocks name their arena by index, so entries stay; a dead one has base 0.
  for (std::size_t i = 0; i + 1 < arenas_.size(); ++i) {
    Arena& arena = arenas_[i];
    if (arena.base == 0 || arena.live != 0) continue;
    dead.push_back(arena.base);
    counters_.arena_bytes -= arena.mapped;
    arena = Arena{};
  }
  return dead;
}

// ------------------------------------------------------------------------------------------------- late blocks
// The named slow paths: something is late, or was.

bool ArenaSpace::is_clear_of_late(Range r) const { return free_ ? free_->contains(r) : !late_.intersects(r); }

bool ArenaSpace::is_in_hole(Range r) const {
  const std::vector<Range>& holes = arena().holes;
  return std::any_of(holes.begin(), holes.end(), [r](Range hole) { return hole.intersects(r); });
}

void ArenaSpace::make_late(BlockId id) {
  Block& block = blocks_[id];
  if (!free_) late_.insert(range_of(block));
  block.slot = kNoRequest;
  block.where = Where::late;
}

void ArenaSpace::take(const Block& block) { free_->take(range_of(block)); }

void ArenaSpace::free(const Block& block) {
  if (!free_) {
    late_.erase(block.address);
  } else if (is_current(block)) {
    free_->give(range_of(block));
  }
}

// ------------------------------------------------------------------------------------------------- free ranges

FreeRanges& ArenaSpace::find_free_ranges() {
  const auto unit = static_cast<std::uintptr_t>(unit_);
  const Range all = arena().range;
  FreeRanges found({all.begin, all.begin + (all.end - all.begin) / unit * unit}, unit);
  for (const Range hole : arena().holes) found.take(hole);
  each_block([&](const Block& block) {
    if (is_current(block)) found.take(range_of(block));
  });
  free_.emplace(std::move(found));
  late_.clear();
  return *free_;
}

void ArenaSpace::drop_free_ranges() {
  if (!free_) return;
  RangeSet late;
  each_block([&](const Block& block) {
    if (block.where == Where::late) late.insert(range_of(block));
  });
  late_ = std::move(late);
  free_.reset();
}

// ----------------------------------------------------------------------------------------------------- stayers

std::vector<Range> ArenaSpace::stayers() const {
  std::vector<Range> found;
  each_block([&](const Block& block) {
    const bool late = block.where == Where::late && !block.held && is_current(block);
    if (!late || lane_.recorder().age(block.birth) < kStays) return;
    const Range r = range_of(block);
    found.push_back({r.begin - arena().base, r.end - arena().base});
  });
  return found;
}

// ------------------------------------------------------------------------------------------------- held blocks

void ArenaSpace::hold(BlockId id, bool may_wait) {
  Block& block = blocks_[id];
  block.held = true;
  if (may_wait && block.where == Where::late && is_current(block)) held_.push_back(id);
}

void ArenaSpace::forget_held(BlockId id) { held_.erase(std::remove(held_.begin(), held_.end(), id), held_.end()); }

bool ArenaSpace::take_held(Range r) {
  const auto in_the_way = std::stable_partition(held_.begin(), held_.end(),
                                                [&](BlockId id) { return !range_of(blocks_[id]).intersects(r); });
  if (free_) {
    for (auto at = in_the_way; at != held_.end(); ++at) free_->give(range_of(blocks_[*at]));
    const bool only_held = free_->contains(r);
    for (auto at = in_the_way; at != held_.end(); ++at) free_->take(range_of(blocks_[*at]));
    if (!only_held) return false;
  } else if (late_.count(r) != static_cast<std::size_t>(held_.end() - in_the_way)) {
    return false;
  }
  awaited_.insert(awaited_.end(), in_the_way, held_.end());
  for (auto at = in_the_way; at != held_.end(); ++at) remove(blocks_[*at]);
  held_.erase(in_the_way, held_.end());
  return true;
}

void ArenaSpace::drop_awaited() {
  for (const BlockId id : awaited_) blocks_.erase(id);
  awaited_.clear();
}

// -------------------------------------------------------------------------------------------------- invariants

std::size_t ArenaSpace::count(Where where) const {
  std::size_t count = 0;
  each_block([&](const Block& block) { count += block.where == where; });
  return count;
}

void ArenaSpace::assert_invariants() const {
  assert_arenas_count_their_blocks();
  assert_late_blocks_are_known();
  assert_the_rest_is_free();
  assert_held_blocks_are_late();
}

void ArenaSpace::assert_arenas_count_their_blocks() const {
  std::vector<std::uint32_t> live(arenas_.size());
  each_block([&](const Block& block) {
    const Arena& arena = arenas_[block.arena];
    ++live[block.arena];
    const bool in_hole = is_current(block) && is_in_hole(range_of(block));
    require(arena.range.contains(range_of(block)) && !in_hole, "a block of an arena lies in its memory");
  });
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    require(live[i] == arenas_[i].live, "an arena counts its live blocks");
  }
}

void ArenaSpace::assert_late_blocks_are_known() const {
  each_block([&](const Block& block) {
    const bool known = block.where != Where::late || free_ || late_.intersects(range_of(block));
    require(known, "a late block is in the late set, unless the free ranges tell");
  });
  require(late_.size() == (free_ ? 0 : count(Where::late)), "no other is in it");
}

void ArenaSpace::assert_the_rest_is_free() const {
  if (!free_) return;
  std::uintptr_t taken = 0;
  for (const Range hole : arena().holes) taken += hole.end - hole.begin;
  each_block([&](const Block& block) {
    if (!is_current(block)) return;
    taken += static_cast<std::uintptr_t>(block.capacity);
    require(free_->is_taken(range_of(block)), "no range in which a block lives is free");
  });
  require(free_->taken() == taken, "everything else is free");
  require(free_->are_consistent(), "the free ranges in order are those that the bits tell of");
}

void ArenaSpace::assert_held_blocks_are_late() const {
  for (const BlockId id : held_) {
    require(blocks_[id].held && blocks_[id].where == Where::late, "what may be waited for is held, in the arena");
  }
}

}  // namespace stowplan::allocator
