#include "arena_space.hpp"

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
    arena.mapped += run.size();
  }
  counters_.arena_bytes += arena.mapped;
  drop_free_ranges();
  counters_.note_peaks();
}

// The ranges of an arena in which nothing lives, which have no memory from now on.
std::vector<Range> ArenaSpace::withdraw_idle(std::uintptr_t base) {
  const auto at =
      std::find_if(arenas_.begin(), arenas_.end(), [base](const Arena& arena) { return arena.base == base; });
  std::vector<Range> idle;
  if (at == arenas_.end()) return idle;
  const bool is_retired = at + 1 != arenas_.end();
  const auto add = [&idle](const Holes& free) {
    for (const auto& [begin, hole] : free) idle.push_back(range_at(begin, hole.end));
  };
  is_retired ? add(find_free(*at)) : add(free_ranges());
  at->holes.insert(at->holes.end(), idle.begin(), idle.end());
  if (!is_retired) {  // reserve() counts what it has then
    drop_free_ranges();
    return idle;
  }
  for (const Range range : idle) {
    at->mapped -= range.size();
    counters_.arena_bytes -= range.size();
  }
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

bool ArenaSpace::is_clear_of_late(Range r) const { return free_ ? free_in(r) == r.size() : !late_.intersects(r); }

bool ArenaSpace::is_in_hole(const Arena& arena, Range r) {
  return std::any_of(arena.holes.begin(), arena.holes.end(), [r](Range hole) { return hole.intersects(r); });
}

void ArenaSpace::make_late(BlockId id) {
  Block& block = blocks_[id];
  if (!free_) late_.insert(range_of(block));
  block.slot = kNoRequest;
  block.where = Where::late;
}

void ArenaSpace::free(const Block& block) {
  if (!free_) {
    late_.erase(block.address);
  } else if (is_current(block)) {
    give(*free_, range_of(block));
  }
}

// ------------------------------------------------------------------------------------------------- free ranges

const Holes& ArenaSpace::free_ranges() {
  if (free_) return *free_;
  free_ = find_free(arena());
  late_.clear();
  return *free_;
}

Holes ArenaSpace::find_free(const Arena& arena) const {
  Holes found;
  const auto unit = static_cast<std::uintptr_t>(unit_);
  const Range all = arena.range;
  found.promise(1);
  give(found, {all.begin, all.begin + (all.end - all.begin) / unit * unit});
  for (const Range hole : arena.holes) take(found, hole);
  each_block([&](const Block& block) {
    if (&arenas_[block.arena] == &arena) take(found, range_of(block));
  });
  return found;
}

// Precondition: the range is free. It keeps a promise for give().
void ArenaSpace::take(Holes& free, Range r) {
  free.promise(2);
  free.cut(static_cast<Bytes>(r.begin), static_cast<Bytes>(r.end), nullptr);
}

// Precondition: the range is taken.
void ArenaSpace::give(Holes& free, Range r) {
  if (r.begin < r.end) free.put({static_cast<Bytes>(r.begin), static_cast<Bytes>(r.end), Holes::kOver, 0});
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

// ---------------------------------------------------------------------------------------------------- occupied

std::vector<std::pair<Bytes, Bytes>> ArenaSpace::occupied() const {
  std::vector<std::pair<Bytes, Bytes>> found;
  each_block([&](const Block& block) {
    const bool late = block.where == Where::late && !block.held && is_current(block);
    if (!late || lane_.recorder().age(block.birth) < kStays) return;
    found.emplace_back(offset_of(block.address), offset_of(range_of(block).end));
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
    Bytes clear = free_in(r);
    for (auto at = in_the_way; at != held_.end(); ++at) {
      const Range held = range_of(blocks_[*at]);
      clear += Range{std::max(r.begin, held.begin), std::min(r.end, held.end)}.size();
    }
    if (clear < r.size()) return false;
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
    const bool in_hole = is_in_hole(arena, range_of(block));
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
  Bytes taken = 0;
  for (const Range hole : arena().holes) taken += hole.size();
  each_block([&](const Block& block) {
    if (!is_current(block)) return;
    taken += block.capacity;
    require(free_in(range_of(block)) == 0, "no range in which a block lives is free");
  });
  require(taken + free_in(arena().range) == arena().range.size() / unit_ * unit_, "everything else is free");
}

void ArenaSpace::assert_held_blocks_are_late() const {
  for (const BlockId id : held_) {
    require(blocks_[id].held && blocks_[id].where == Where::late, "what may be waited for is held, in the arena");
  }
}

}  // namespace stowplan::allocator
