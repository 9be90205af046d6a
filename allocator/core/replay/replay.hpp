// The replay core: answers each request of a lane with the address that the plan precomputed, or sends it upstream.
//
//     request ──> matcher  ──> in its slot      the planned address, unless a late block is in the way
//                    |         as a guest       where the plan has no use for the range
//                    v         upstream         where there is room
//                 cursor
//                    |
//                    v
//               arena space
//
//     matcher       which request of the plan is this? (plan_matcher.hpp)
//     cursor        where in the plan is the step, and which blocks are in their slots? (plan_cursor.hpp)
//     arena space   what lives in the arena, and what is in the way of an address? (arena_space.hpp)
//     guests        may a request that the plan has no place for be a guest? (guests.hpp)
//
// What the plan knows to be alive at request k cannot overlap the planned range of k, because the placement was
// checked; what is alive beyond its plan is late, and is asked. So the planned address is free, whatever the program
// does:
//
//     live blocks in the arena  =  in their slots (disjoint from k by the plan)  +  late (asked)
//
// A matcher that guesses wrong costs requests their planned address, never an overlap. O(1) per request, amortized, as
// long as nothing is late. All requests are of one stream, and so is the arena (lanes.hpp sees to it).
//
// Not synchronized: the owner holds a lock.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "arena_space.hpp"
#include "block.hpp"
#include "counts.hpp"
#include "diagnosis.hpp"
#include "guests.hpp"
#include "host_memory.hpp"
#include "plan.hpp"
#include "plan_cursor.hpp"
#include "plan_matcher.hpp"
#include "step_recorder.hpp"

namespace stowplan::allocator {

// What all lanes have in common.
struct Shared {
  Blocks blocks;
  Counters counters;
};

// What end_step() says of the step.
struct StepOutcome {
  std::vector<Event> log;
  bool complete = false;  // the log holds all of the step; not that of a clean one without timestamps, as planned
  bool clean = false;     // there was a plan, and every planned request was served from it
  std::uint64_t tag = 0;  // the plan that the step followed at its end; 0 for none
};

class Replay {
 public:
  // `unit`: bytes to which guests are rounded up and aligned, relative to the arena. `lane`: its number among the
  // lanes.
  Replay(Bytes unit, Shared& shared, LaneNumber lane);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Precondition of request(): a step is running. `may_wait`: its stream may be made to wait, see hold().
  Grant request(Bytes size, Stream stream, bool may_wait);
  Grant pass_upstream(Bytes size, Stream stream, Reason reason);
  bool release(BlockId id);  // true: upstream's
  // A request of the step was not noted: its log is not whole, and it did not go as planned.
  void pass_over() {
    recorder_.truncate();
    clean_ = false;
  }

  // Takes a block that upstream has no memory for into the arena, wherever nothing lives; false: there is no room, or
  // the request was not the arena's stream's.
  bool serve_from_holes(BlockId id, Reason reason);

  // Upstream has no memory for a block, so the step's log leaves the request out. The caller releases the block next.
  void refuse(BlockId id);

  // A free of a block that other streams may still use: the program is rid of it, its range stays taken until let_go().
  // Where `may_wait`, a request that may wait is served there before: then its Grant says `waits`, and what it took the
  // place of is in awaited(). These numbers are not given to other blocks before drop_awaited(), and to let go of them
  // is nothing.
  void hold(BlockId id, bool may_wait);
  bool let_go(BlockId id);  // true: upstream's
  const std::vector<BlockId>& awaited() const { return space_.awaited(); }
  void drop_awaited() { space_.drop_awaited(); }

  // Starts a step that is expected to follow `plan` (null: none), or else one of `others`. Plans for which the arena is
  // too small are left out. Precondition: none is running.
  void begin_step(PlanPtr plan, std::vector<PlanPtr> others = {});
  StepOutcome end_step();
  bool in_step() const { return recorder_.in_step(); }
  void set_timestamps(bool on) { recorder_.set_timestamps(on); }
  void set_guests(bool on) { has_guests_ = on; }  // off: what the plan does not serve may stay, and goes upstream

  // Makes [base, base + size) the arena, of which these ranges have memory, the lowest first. It may be the present
  // one, larger or smaller; else that is retired: it goes when its last block has gone.
  void reserve(std::uintptr_t base, Bytes size, const std::vector<Range>& memory) {
    space_.reserve(base, size, memory);
  }
  void reserve(std::uintptr_t base, Bytes size) {
    reserve(base, size, {{base, base + static_cast<std::uintptr_t>(size)}});
  }
  // Returns the ranges of an arena, which may be a retired one, in which nothing lives. Nothing is served there until
  // reserve() says what has memory.
  std::vector<Range> withdraw_idle(std::uintptr_t base) { return space_.withdraw_idle(base); }
  const Arena& arena() const { return space_.arena(); }

  // Retires the arena if nothing lives in it; the running step, if any, goes on without a plan.
  bool retire_idle_arena();

  // Bases of retired arenas in which nothing lives any more; the caller gives them back.
  std::vector<std::uintptr_t> take_dead_arenas() { return space_.take_dead(); }

  // For reports.
  LiveBlock describe(const Block& block) const;
  std::uint32_t requests() const { return recorder_.requests(); }  // of the step so far
  std::size_t planned_requests() const { return cursor_.planned_requests(); }
  std::vector<std::pair<Bytes, Bytes>> occupied() const { return space_.occupied(); }
  const StepRecorder& recorder() const { return recorder_; }

  bool runs_without_plan() const { return in_step() && !cursor_.has_plan(); }

  // The place of the next request, from and to which offset, if the step goes on as planned with one for `size`.
  std::pair<Bytes, Bytes> expected_place(Bytes size) const {
    const RequestNumber next = cursor_.next();
    if (!in_step() || !cursor_.has_plan() || !cursor_.equals(next, size)) return {0, 0};
    const Bytes offset = cursor_.plan().offset[next];
    return offset == kUnplanned ? std::pair<Bytes, Bytes>{0, 0}
                                : std::pair{offset, offset + cursor_.plan().capacity[next]};
  }

  // Whether something is in the way of the next request, if the step goes on as planned with one for `size`.
  bool is_in_the_way(Bytes size) const {
    const auto [begin, end] = expected_place(size);
    return end > begin && !space_.is_clear({space_.address_at(begin), space_.address_at(end)});
  }

  Range range_of(BlockId id) const { return allocator::range_of(blocks_[id]); }
  void assert_invariants() const;

 private:
  static constexpr std::uint32_t kNoUse = UINT32_MAX;
  // A longer step would be a large plan for little; bounds the memory of a step that does not end.
  static constexpr std::size_t kMostEvents = std::size_t{1} << 20;

  // In the table, and nowhere else yet.
  BlockId new_block(Bytes size, Stream stream) {
    if (use_ == kNoUse || counters_.streams[use_].stream != stream) use_ = counters_.use_of(stream);
    const BlockId id = blocks_.insert();
    Block& block = blocks_[id];
    block.size = size;
    block.stream = stream;
    block.use = use_;
    block.lane = this;
    return id;
  }
  Grant serve(BlockId id, bool may_wait);
  Grant serve_planned(BlockId id, RequestNumber k, bool may_wait);
  Grant serve_as_guest(BlockId id, Reason reason);
  Grant send_upstream(BlockId id, Reason reason);
  bool has_given_up() const { return guests_.are_too_many(recorder_.requests()); }
  bool is_too_large(const Plan& plan) const { return plan.arena_bytes > arena().size; }
  bool is_clean() const { return clean_ && !guests_.any_unknown(); }
  void note_free(const Block& block);
  bool forget(BlockId id, Block& block);

  Blocks& blocks_;      // of all lanes
  Counters& counters_;  // of all lanes
  const LaneNumber lane_;
  std::uint32_t use_ = kNoUse;  // of the last request's stream: see Counters
  StepRecorder recorder_{kMostEvents};
  ArenaSpace space_;
  PlanCursor cursor_{space_};
  PlanMatcher matcher_;
  Guests guests_;
  bool clean_ = true;  // every request of the step that the plan knows was served from its slot
  bool has_guests_ = true;
};

}  // namespace stowplan::allocator
