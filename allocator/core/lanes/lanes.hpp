// Who replays what: a replay core for each stream of each step that runs at once.
//
// Two requests may share an address only if what the first one's block was used for is over when the second one's block
// is used. On one stream that is so by itself. So each stream has a *lane*: a replay core with a cursor, plans and an
// arena of its own. Nothing of one lane concerns another, and no address passes between them.
//
//     request ──> StepSlots: which step does its thread run?  ── none ─────────> upstream: outside, thread, interrupted
//                     │
//                 LaneRouter: which lane has its stream there?  ── none ───────> upstream: stream
//                     │
//                 Replay: which address?
//
// A block belongs to the lane that it came from, whichever thread frees it.
//
// O(1) per request as long as requests come in runs of one runner and stream, else O(lanes).
//
// Not synchronized: the owner holds a lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "invariants.hpp"
#include "lane_router.hpp"
#include "replay.hpp"
#include "step_slots.hpp"

namespace stowplan::allocator {

// How a lane's part of a step begins: what it is expected to follow (null: no plan), and all that it may.
struct LaneStart {
  LaneNumber lane = 0;
  PlanPtr plan;
  std::vector<PlanPtr> others;
  Bytes arena_bytes = 0;   // of an arena in which each of them can be replayed
  bool timestamps = true;  // note the wall clock of its events, and keep the log even of a clean step
  bool guests = true;      // see Replay::set_guests
};

struct LaneOutcome {
  LaneNumber lane;
  StepOutcome outcome;
};

class Lanes {
 public:
  // `unit`: see Replay.
  explicit Lanes(Bytes unit, Scope scope = Scope::thread);
  Scope scope() const { return slots_.scope(); }

  // Hands a request to its lane, or upstream. `may_wait`: see Replay.
  Grant request(Bytes size, Stream stream, ThreadId thread, bool may_wait = false) {
    const Whose whose = lane_of(stream, thread);
    const Grant grant = whose.lane != nullptr ? whose.lane->request(size, stream, may_wait)
                                              : lanes_.front()->pass_upstream(size, stream, whose.reason);
    if (kDebug) assert_invariants();
    return grant;
  }
  // Whether something is in the way of a request, if it comes as planned.
  bool is_in_the_way(Bytes size, Stream stream, ThreadId thread) {
    const Replay* lane = lane_of(stream, thread).lane;
    return lane != nullptr && lane->is_in_the_way(size);
  }
  void adopt(BlockId id, std::uintptr_t address) {
    Block& block = shared_.blocks[id];
    block.address = address;
    shared_.counters.upstream_bytes += block.size;
    shared_.counters.note_live(block.use, block.size);
    shared_.counters.note_peaks();
  }
  bool serve_from_holes(BlockId id, Reason reason) { return of(id).serve_from_holes(id, reason); }
  void cancel(BlockId id) {
    refuse(id, current_thread());
    release(id);
  }
  // There was no memory to note a request: upstream serves it, and its step is not planned.
  void pass_over(ThreadId thread);
  bool release(BlockId id) {
    const bool upstream = of(id).release(id);
    if (kDebug) assert_invariants();
    return upstream;
  }
  Bytes size_of(BlockId id) const { return shared_.blocks[id].size; }

  // See Replay.
  void hold(BlockId id, bool may_wait) { of(id).hold(id, may_wait); }
  bool let_go(BlockId id) { return of(id).let_go(id); }
  const std::vector<BlockId>& awaited(BlockId granted) { return of(granted).awaited(); }
  void drop_awaited(BlockId granted) { of(granted).drop_awaited(); }
  // By how much the most that its stream had live rises with a block that is unanswered.
  Bytes rise(BlockId id) const {
    const Counters::StreamUse& used = shared_.counters.streams[shared_.blocks[id].use];
    return std::max(Bytes{0}, used.live + shared_.blocks[id].size - used.peak);
  }
  Stream stream_of(BlockId id) const { return shared_.blocks[id].stream; }
  void keep_streams(const std::vector<Stream>& served) { shared_.counters.keep_streams(served); }

  // Takes a step slot for a step of this thread, which is not interrupted; none where its runner runs one already. The
  // steps of threads that have ended end.
  std::optional<StepSlotNumber> enter(ThreadId thread);
  // Whether a step has begun ever; without the lock.
  bool has_entered() const { return has_entered_.load(std::memory_order_relaxed); }
  // Begins a lane's part of the step. Plans that do not fit its arena are left out.
  void begin(const LaneStart& start);
  // Ends the step in those of the step slot's lanes in which it began, in their order, and leaves the step slot.
  std::vector<LaneOutcome> end(StepSlotNumber slot);
  // Precondition: no lane of the step slot is in a step.
  void leave(StepSlotNumber slot);
  // Ends the steps of all other threads, and returns their step slots: a fork has left these threads behind.
  std::vector<StepSlotNumber> end_steps_of_others(ThreadId thread);

  // The step slot's lanes, and one more, which has no stream yet.
  const std::vector<LaneNumber>& lanes_of(StepSlotNumber slot) const { return router_.lanes_of(slot); }
  std::uint64_t steps(StepSlotNumber slot) const { return slots_.steps(slot); }
  // Whether this is the step, its `step`th, that runs in it.
  bool runs(StepSlotNumber slot, std::uint64_t step) const { return !slots_.is_free(slot) && steps(slot) == step; }
  LaneNumber add_lane(StepSlotNumber slot);
  // See LaneRouter.
  bool takes_over(StepSlotNumber slot) { return router_.takes_over(slot, slots_.steps(slot)); }
  void welcome(StepSlotNumber slot);

  // Requests of its step go upstream unlogged while it is interrupted.
  void set_interrupted(ThreadId thread, bool interrupted);

  bool is_of(BlockId id, LaneNumber number) const { return shared_.blocks[id].lane == lanes_[number].get(); }
  Replay& lane(LaneNumber number) { return *lanes_[number]; }
  std::optional<Stream> stream_of_lane(LaneNumber number) const { return router_.stream_of(number); }
  void retire_idle_arenas();
  std::vector<std::uintptr_t> take_dead_arenas();

  const Counters& counters() const { return shared_.counters; }
  void count(Reason reason, std::uint64_t requests) { shared_.counters.of(reason) += requests; }
  // What upstream keeps for later requests, now, and by how much more arenas have in memory than was counted.
  void note_memory(Bytes kept, Bytes more_in_arenas) {
    shared_.counters.kept_bytes = kept;
    shared_.counters.arena_bytes += more_in_arenas;
    shared_.counters.note_peaks();
  }
  void reset_peaks() { shared_.counters.reset_peaks(); }

  // Upstream has no memory for a block, which is to be released: see Replay. What the request found is noted.
  void refuse(BlockId id, ThreadId thread);

  // What fills the memory, as a thread sees it; the last request that upstream had no memory for, and what it found.
  Situation situation(ThreadId thread) const;
  const Failure& failure() const { return failure_; }

  // Every block in the table, for tests and invariants: disjoint address ranges.
  std::vector<BlockId> live_blocks() const;
  Range range_of(BlockId id) const { return lanes_.front()->range_of(id); }
  void assert_invariants() const;

 private:
  struct Whose {
    Replay* lane = nullptr;  // none: upstream's turn,
    Reason reason = {};      // for this reason
  };
  Whose lane_of(Stream stream, ThreadId thread) {
    const bool as_before = slots_.runner_of(thread) == last_runner_ && stream == last_stream_;
    return as_before ? Whose{last_} : find_lane(stream, thread);
  }
  Whose find_lane(Stream stream, ThreadId thread);
  void make_lanes();
  void forget_last() { last_runner_ = 0; }
  Replay& of(BlockId id) { return *shared_.blocks[id].lane; }

  const Bytes unit_;
  Shared shared_;
  StepSlots slots_;
  std::atomic<bool> has_entered_{false};
  LaneRouter router_;
  std::vector<std::unique_ptr<Replay>> lanes_;
  Failure failure_;

  // The last request's lane, as long as its step is running and not interrupted. No runner is 0.
  Replay* last_ = nullptr;
  Runner last_runner_ = 0;
  Stream last_stream_ = 0;
};

}  // namespace stowplan::allocator
