// Who replays what: a replay core for each stream of each step that runs at once.
//
// Two requests may share an address only if what the first one's block was used for is over when the second one's block
// is used. On one stream that is so by itself. So each stream has a *lane*: a replay core with a cursor, plans and an
// arena of its own. Nothing of one lane concerns another, and no address passes between them.
//
// Threads that run steps at once have a *step slot* each, and a step slot has lanes of its own:
//
//     step slot 0    [ lane 0: stream 0  | arena ]  [ lane 1: stream 7 | arena ]      thread A, in a step
//     step slot 1    [ lane 2: stream 0  | arena ]                                    thread B, in a step
//     step slot 2    [ lane 3: stream 0  | arena ]                                    free: C had it the last time
//
// A step takes the step slot that its thread had the last time, or else the first free one, or a new one: there are as
// many as steps have ever run at once, however many threads come and go. A request goes to the lane of its thread's
// step slot and of its stream; upstream where its thread runs no step, or the stream has no lane. A block belongs to
// the lane that it came from, whichever thread frees it.
//
// That is Scope::thread. Elsewhere (scope.hpp) a step is a stream's, or the process's, and a step slot is what it
// takes. Where a process's steps differ only in how threads take turns, its step slot is *split*: then each thread has
// lanes of its own in it, as each stream has.
//
// A lane without a stream takes the first one that asks and has none. Streams that asked in vain have a lane from the
// step slot's next step on: a new one, or that of a stream that stayed away from its last kAway steps, once its owner
// has waited for the device.
//
// O(1) per request as long as requests come in runs of one thread and stream, else O(lanes).
//
// Not synchronized: the owner holds a lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "invariants.hpp"
#include "replay.hpp"
#include "scope.hpp"

namespace stowplan::allocator {

using StepSlotNumber = std::uint16_t;

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
  static constexpr std::size_t kMostLanes = 8;  // of a step slot
  static constexpr std::uint32_t kAway = 8;

  // `unit`: see Replay.
  explicit Lanes(Bytes unit, Scope scope = Scope::thread);
  Scope scope() const { return scope_; }

  // The service that HostMemory asks (host_memory.hpp).
  void before_request() {}
  Grant request(Bytes size, Stream stream, ThreadId thread) {
    const bool as_before = thread == last_thread_ && stream == last_stream_;
    if (as_before && last_order_ != nullptr) last_order_->note(thread, size, stream);
    const Grant grant = as_before ? last_->request(size, stream) : find_lane_and_request(size, stream, thread);
    if (kDebug) assert_invariants();
    return grant;
  }
  void adopt(BlockId id, std::uintptr_t address) {
    shared_.blocks[id].address = address;
    shared_.counters.note_peaks();
  }
  bool shelter(BlockId id, Reason reason) { return of(id).shelter(id, reason); }
  void cancel(BlockId id) {
    note_failure(id, profiler::current_thread());
    release(id);
  }
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
  Stream stream_of(BlockId id) const { return shared_.blocks[id].stream; }

  // Takes a step slot for a step of this thread (on this stream, where steps are streams'), which is not interrupted;
  // none where it runs one already.
  std::optional<StepSlotNumber> enter(ThreadId thread, Stream stream = 0) {
    return take_step_slot(runner(thread, stream), thread);
  }
  // The step slot that the step of this thread, or of this stream, has taken.
  std::optional<StepSlotNumber> step_slot_of(ThreadId thread, Stream stream = 0) const {
    return step_slot_of_runner(runner(thread, stream));
  }
  // Begins the step in lanes of its step slot. Where the arena is smaller than `arena_bytes`, the plans that do not fit
  // are left out. `may_wait`: see Replay.
  void begin(std::vector<LaneStart> starts, bool may_wait);
  // Ends the step in those of the step slot's lanes in which it began, in their order, and leaves the step slot.
  std::vector<LaneOutcome> end(StepSlotNumber step_slot);
  // Precondition: no lane of the step slot is in a step.
  void leave(StepSlotNumber step_slot);

  // The step slot's lanes, and one more, which has no stream yet.
  const std::vector<LaneNumber>& lanes_of(StepSlotNumber step_slot) const { return step_slots_[step_slot].lanes; }
  std::size_t step_slots() const { return step_slots_.size(); }
  LaneNumber add_lane(StepSlotNumber step_slot);
  // Whether welcome() would give a lane to another stream: nobody may use its memory any more then.
  bool takes_over(StepSlotNumber step_slot) const;
  // Gives lanes to the streams that asked in vain.
  void welcome(StepSlotNumber step_slot);

  // Requests of its step go upstream unlogged while it is interrupted.
  void set_interrupted(ThreadId thread, bool interrupted, Stream stream = 0);

  Replay& lane(LaneNumber number) { return lanes_[number]->replay; }
  std::size_t lanes() const { return lanes_.size(); }
  std::vector<std::uintptr_t> take_dead_arenas();

  const Counters& counters() const { return shared_.counters; }
  void reset_peaks();

  // What fills the memory, as a thread sees it; the last request that upstream had no memory for, and what it found.
  Situation situation(ThreadId thread, Stream stream = 0) const;
  void note_failure(BlockId id, ThreadId thread);
  const Failure& failure() const { return failure_; }

  // Every block in the table, for tests and invariants: disjoint address ranges.
  std::vector<BlockId> live_blocks() const;
  Range range_of(BlockId id) const { return lanes_.front()->replay.range_of(id); }
  void assert_invariants() const;

 protected:
  Runner runner(ThreadId thread, Stream stream) const { return runner_of(scope_, thread, stream); }
  std::optional<StepSlotNumber> take_step_slot(Runner runner, ThreadId thread);
  // Whether requests go to the step slot's first lane.
  bool is_first_lane(StepSlotNumber step_slot, Stream stream, ThreadId thread) const;
  bool is_interrupted(Runner runner) const {
    return !interrupted_.empty() && std::find(interrupted_.begin(), interrupted_.end(), runner) != interrupted_.end();
  }
  // Of the steps that other threads have entered.
  std::vector<StepSlotNumber> step_slots_of_others(ThreadId thread) const;
  // One step of the step slot has ended.
  void count_step(StepSlotNumber step_slot);
  void count(Reason reason, std::uint64_t requests) { shared_.counters.of(reason) += requests; }

 private:
  // Whose requests a lane takes: a stream's; in a step slot that is split, only one thread's.
  struct Source {
    Stream stream;
    ThreadId thread;  // 0: all
    bool operator==(const Source& other) const { return stream == other.stream && thread == other.thread; }
    bool operator!=(const Source& other) const { return !(*this == other); }
  };
  struct Lane {
    Lane(Bytes unit, Shared& shared, LaneNumber number) : replay(unit, shared, number) {}
    Replay replay;
    std::optional<Source> source;
    std::uint64_t last_step = 0;  // of the step slot, in which the source asked
  };
  struct StepSlot {
    Runner runner = 0;  // whose step has it; 0 while it is free
    Runner last_runner = 0;
    ThreadId entered_by = 0;
    std::uint64_t steps = 0;
    std::vector<LaneNumber> lanes;
    std::vector<Source> strangers;  // that asked in vain
    bool is_split = false;
    ThreadOrder order;  // where the step is of all threads, and not split
  };

  Grant find_lane_and_request(Bytes size, Stream stream, ThreadId thread);
  std::optional<StepSlotNumber> step_slot_of_runner(Runner runner) const;
  static Source source_of(const StepSlot& step_slot, Stream stream, ThreadId thread) {
    return {stream, step_slot.is_split ? thread : 0};
  }
  Lane* lane_of(StepSlot& step_slot, const Source& source);
  void look_at_order(StepSlot& step_slot);
  LaneNumber next_to_take_over(const StepSlot& step_slot, const std::vector<LaneNumber>& taken) const;
  void forget_last() { last_thread_ = 0; }
  StepSlotNumber step_slot_for(Runner runner) const;
  Replay& of(BlockId id) { return *shared_.blocks[id].lane; }

  static constexpr LaneNumber kNoLane = UINT16_MAX;

  const Bytes unit_;
  const Scope scope_;
  Shared shared_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<StepSlot> step_slots_;
  std::size_t steps_running_ = 0;
  std::vector<Runner> interrupted_;
  Failure failure_;

  // The last request's lane, as long as its step is running and not interrupted. No thread is 0.
  Replay* last_ = nullptr;
  ThreadOrder* last_order_ = nullptr;
  ThreadId last_thread_ = 0;
  Stream last_stream_ = 0;
};

}  // namespace stowplan::allocator
