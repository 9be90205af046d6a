// What lives in a lane's arena, and what is in the way of an address.
//
//     arena   |  slot 3  |  overdue |  slot 9  |   held   |  guest  |         |
//             \_________/ \________/ \________/ \____________________/
//              planned        late    planned            late
//
// A block is in its slot, where the plan knows of it, or it is *late*: alive beyond its planned end, of another plan,
// or a guest. Blocks in slots are disjoint from any planned address that is asked for, because the placement was
// checked. So only late blocks can be in the way of one:
//
//   late set      the ranges of all late blocks. O(1) while it is empty, else O(log late)
//   free ranges   what nothing at all lives in, from a step's first guest on (holes.hpp): they stand in for the
//                 late set until the next step begins; it is left empty
//   held blocks   late ones that the program is rid of, but that other streams may still use. They stay until their
//                 owner knows that the streams are done with them, or until a request is served in their place whose
//                 owner sees to it that its stream waits for them first: they are *awaited* then
//   arenas        a new arena retires the one before, which goes when its last block has gone. Whoever reserves an
//                 arena sees to it that its memory is in no use any more
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "block.hpp"
#include "holes.hpp"
#include "range_set.hpp"

namespace stowplan::allocator {

struct Counters;

struct Arena {
  std::uintptr_t base = 0;
  Bytes size = 0;     // that plans may have offsets in
  Range range{0, 0};  // what has memory, but for holes: all of it, or what a virtual arena has (virtual_arena.hpp)
  std::vector<Range> holes;  // disjoint, the lowest first
  Bytes mapped = 0;          // bytes that have memory
  std::uint32_t live = 0;    // blocks alive in it

  // The bytes from its base on that have memory.
  Bytes whole() const {
    if (range.begin != base) return 0;
    return static_cast<Bytes>((holes.empty() ? range.end : holes.front().begin) - base);
  }
};

class ArenaSpace {
 public:
  static constexpr int kRangeTries = 8;      // free ranges that a search looks at
  static constexpr std::int64_t kStays = 2;  // steps since its own that a block has seen begin, or is about to

  // `unit`: bytes to which sizes beside the plan are rounded up and aligned, relative to the arena. `blocks`: of all
  // lanes; those of `lane` live here.
  ArenaSpace(Bytes unit, const Replay& lane, Blocks& blocks, Counters& counters);

  // Arenas; see Replay.
  const Arena& arena() const { return arenas_.back(); }
  void reserve(std::uintptr_t base, Bytes size, const std::vector<Range>& memory);
  std::vector<Range> withdraw_idle(std::uintptr_t base);
  bool retire_idle();
  std::vector<std::uintptr_t> take_dead();

  std::uintptr_t address_at(Bytes offset) const { return arenas_.back().base + static_cast<std::uintptr_t>(offset); }
  Bytes offset_of(std::uintptr_t address) const { return static_cast<Bytes>(address - arenas_.back().base); }
  Bytes rounded(Bytes size) const { return (std::max<Bytes>(size, 1) + unit_ - 1) / unit_ * unit_; }

  bool has_memory(Range r) const {
    const Arena& arena = arenas_.back();
    return arena.range.contains(r) && (arena.holes.empty() || !is_in_hole(arena, r));
  }

  // Whether no late block is in the way of a planned range.
  bool is_clear(Range r) const { return nothing_is_late() || is_clear_of_late(r); }

  // Whether only held blocks are in the way. If so, they leave the arena, and are awaited.
  bool take_held(Range r);

  // A free address for `size` bytes that `suits(range)` accepts, in the smallest free range that holds them: its lowest
  // address, or else its highest. 0 if none of the first free ranges will do.
  template <class Suits>
  std::uintptr_t best_fit(Bytes size, Suits&& suits) {
    const Bytes needed = rounded(size);
    int tries = kRangeTries;
    std::uintptr_t found = 0;
    const auto look = [&](Bytes begin, Bytes end) {
      for (const Bytes at : {begin, end - needed}) {
        if (found == 0 && suits(range_at(at, at + needed))) found = static_cast<std::uintptr_t>(at);
      }
      return found == 0 && --tries > 0;
    };
    free_ranges().each_of(Holes::kOver, look, needed);
    return found;
  }

  // Takes in a block of the table that has its planned range. Precondition: that is clear.
  void put_in_slot(BlockId id, Range r, RequestNumber slot) { put(id, r, Where::slot, slot); }
  // Takes in a block of the table that the plan does not know to be here. Precondition: best_fit() said so.
  void put_beside(BlockId id, std::uintptr_t address) {
    put(id, {address, address + static_cast<std::uintptr_t>(rounded(blocks_[id].size))}, Where::late, kNoRequest);
  }
  // The plan does not know any more that this block is in its slot.
  void make_late(BlockId id);
  // Takes a block out of everything but the table.
  void remove(Block& block) {
    if (block.where == Where::late || free_) free(block);
    block.where = Where::nowhere;
    --arenas_[block.arena].live;
  }

  // Held blocks; see Replay. Precondition of hold(): the block is not in a slot.
  void hold(BlockId id, bool may_wait);
  void forget_held(BlockId id);
  const std::vector<BlockId>& awaited() const { return awaited_; }
  void drop_awaited();

  // Back to the late set.
  void drop_free_ranges();

  // Where in the arena blocks are late that have outlived the step after their own, unless the program is rid of them:
  // what a plan has to be placed beside, if it is to be replayed in full. Offsets. O(blocks).
  std::vector<std::pair<Bytes, Bytes>> occupied() const;

  // For invariants.
  const Block& block(BlockId id) const { return blocks_[id]; }
  std::size_t count(Where where) const;
  void assert_invariants() const;

 private:
  void put(BlockId id, Range r, Where where, RequestNumber slot) {
    if (free_) take(*free_, r);
    Block& placed = blocks_[id];
    placed.address = r.begin;
    placed.capacity = r.size();
    placed.where = where;
    placed.slot = slot;
    placed.arena = static_cast<std::uint32_t>(arenas_.size() - 1);
    ++arenas_.back().live;
  }
  static Range range_at(Bytes begin, Bytes end) {
    return {static_cast<std::uintptr_t>(begin), static_cast<std::uintptr_t>(end)};
  }
  bool nothing_is_late() const { return !free_ && late_.empty(); }
  bool is_clear_of_late(Range r) const;
  static bool is_in_hole(const Arena& arena, Range r);
  Bytes free_in(Range r) const { return free_->within(static_cast<Bytes>(r.begin), static_cast<Bytes>(r.end)); }
  Holes find_free(const Arena& arena) const;
  static void take(Holes& free, Range r);
  static void give(Holes& free, Range r);
  void free(const Block& block);
  bool is_current(const Block& block) const { return block.arena + 1 == arenas_.size(); }
  const Holes& free_ranges();

  template <class Visit>
  void each_block(Visit&& visit) const;
  void assert_arenas_count_their_blocks() const;
  void assert_late_blocks_are_known() const;
  void assert_the_rest_is_free() const;
  void assert_held_blocks_are_late() const;

  const Bytes unit_;
  const Replay& lane_;
  Blocks& blocks_;
  Counters& counters_;
  std::vector<Arena> arenas_;     // the last one is current
  RangeSet late_;                 // of all arenas; empty while there are free ranges
  std::optional<Holes> free_;     // of the current arena
  std::vector<BlockId> held_;     // in the current arena, if a stream may wait for them
  std::vector<BlockId> awaited_;  // numbers that are not given to other blocks yet
};

}  // namespace stowplan::allocator
