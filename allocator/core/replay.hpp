// The replay core: answers each request with the address that the plan precomputed, or sends it upstream.
//
// A cursor numbers the requests of a step. Before request k is served, the blocks *due* at k (plan.hpp) are looked at;
// one that is still alive moves to the *late set*. What the plan knows to be alive at k cannot overlap the planned
// range of k, because the placement was checked; what is alive beyond its plan stands in the late set and is asked.
// So the planned address is free, whatever the program does:
//
//     live blocks in the arena  =  on schedule (disjoint from k by the plan)  +  late set (asked)
//
// Every block enters the due list once a step and the late set at most once in its life: O(1) per request, amortized,
// while the late set is empty, and O(log late) when it is not.
//
// Resynchronization. A request that equals the plan's is *exact*. Otherwise, with the cursor at k:
//   it fits          (smaller) it takes the slot of k, *tentatively*; the cursor moves on
//   it does not fit  it goes upstream: *lost*; the cursor stays. So does one of less than half the planned size, where
//                    the request before it was exact: it is more likely an extra one
// and the request after it, where that is not exact either, decides what had happened:
//   after lost       equals k + 1: another size had come in the place of k; the cursor moves on
//   after both       the two stand side by side a little ahead in the plan (at most kWindow): requests are missing;
//                    the cursor moves there
//   after tentative  it does not fit, but equals the slot just taken: the smaller one was an extra request; this one goes
//                    upstream, and the cursor is right where it is
//   after lost       fits k + 1: as if it were equal, but tentatively
//
// A merged plan (plan.hpp) is followed in another way, as its steps depart from it all the time: step_locator.hpp. There the
// cursor may also move back. Blocks in the slots that it moves back over, which the plan does not know of then, join the
// late set. A request larger than its slot has its planned address all the same where nothing lives in the range that it
// needs, and stands in the late set as well: the plan does not know that it reaches beyond its slot. Where its own slot is
// taken or too small, it has the smallest free one of the same line in *another iteration* (at most kSlotSpan times as
// large, and as lasting), and stands in the late set too.
//
// Several plans. A step may be one of many (training, the short last batch, a length bucket). It begins with the plan
// that it is expected to follow; where it departs from that plan, after requests that were all exact, and another plan
// has the same beginning and goes on with this request, the step follows the other plan from there. Whatever lives in
// the slots of the plan that is left joins the late set: always safe, and free of conflicts where the packer gave the
// common beginning the same offsets.
//
// Two steps in turn (plan.hpp): a step that began at 0 ends at `half`, and the next one goes on there, if it is expected to
// follow the same plan; what is alive stays on schedule.
//
// Guests. A request that the plan does not know (or has no room for) looks for a free range in the arena before it goes
// upstream, so that memory is not reserved twice: best fit, in one that the plan will not need for the next kHorizon
// requests (a long-lived one that a merged plan knows but has no room for: a high one that the plan will not need before
// its end, so as to be out of the way of those that come and go); or, when kLost requests in a row were not recognised,
// in any. A guest stands in the late set, like everything that the plan does not know to be there. One that stayed on for
// more than a step has shown what its size does: the next of that size goes upstream; and so does a wrapped block whose
// place is taken, which would take another one's in the next step, and so on for ever. When more than one request in
// kShare was not recognised (and more than kFew were), the plan is given up for the rest of the step, and the whole arena
// serves as a best-fit pool: blocks placed by a plan that does not fit only break it up.
//
// From its first guest on, a step asks the arena's free ranges (free_ranges.hpp) what is in the way rather than the late set: they know
// of all that lives in the arena. They stay for as long as merged plans are followed.
//
// Streams. All requests are of one stream, and so is the arena (lanes.hpp sees to it). A block that other streams use as
// well is *held* after its free: it stands in the late set until its owner knows that they are done with it, or until a
// request is served in its place whose owner sees to it that the stream waits for them first. Whoever reserves an arena
// sees to it that nobody uses its memory any more.
//
// A wrong guess costs requests their planned address, never an overlap. The cursor does not move back, but in a merged
// plan, and there it travels kTravel times the plan's length and the step's at the most: the due lists cost O(1) per
// request, amortized.
//
// Not synchronized: the owner holds a lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arena_space.hpp"
#include "block.hpp"
#include "diagnosis.hpp"
#include "host_memory.hpp"
#include "plan.hpp"
#include "step_recorder.hpp"
#include "step_locator.hpp"

namespace stowplan::allocator {

using profiler::Event;
using profiler::Grant;
using profiler::StepRecorder;
using profiler::Stream;
using profiler::ThreadId;

// Why a request was not served from the plan. `replayed` is the one that was.
enum class Reason : std::uint8_t {
  replayed,
  outside,      // not in a step
  thread,       // not in a step, while another thread runs one
  interrupted,  // between interrupt and resume
  no_plan,      // warm-up, record and confirm
  escaped,      // the plan knows that the block outlives the step
  stream,       // on a stream that has no lane
  late,         // a late block stood in the planned range
  mismatch,     // extra, or larger than planned, or not recognised
  count_
};
constexpr std::size_t kReasons = static_cast<std::size_t>(Reason::count_);

struct Counters {
  std::array<std::uint64_t, kReasons> requests{};  // by reason
  std::uint64_t smaller = 0;                       // replayed in a slot larger than asked for
  std::uint64_t elsewhere = 0;                     // replayed in the slot of another iteration
  std::uint64_t missing = 0;                       // planned requests that did not come
  std::uint64_t guests = 0;                        // not served from the plan, but from the arena
  std::uint64_t steps = 0;                         // that have ended
  Bytes live_bytes = 0;                            // asked for and not freed
  Bytes peak_live_bytes = 0;
  Bytes upstream_bytes = 0;  // of which upstream serves
  Bytes arena_bytes = 0;     // all arenas, retired ones too
  Bytes peak_reserved_bytes = 0;

  std::uint64_t& of(Reason reason) { return requests[static_cast<std::size_t>(reason)]; }
  void note_peaks() {
    peak_live_bytes = std::max(peak_live_bytes, live_bytes);
    peak_reserved_bytes = std::max(peak_reserved_bytes, arena_bytes + upstream_bytes);
  }
};

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
  static constexpr RequestNumber kWindow = 64;
  static constexpr RequestNumber kHorizon = 64;
  static constexpr int kLost = 32;
  static constexpr std::uint32_t kFew = 64;
  static constexpr std::uint32_t kShare = 4;
  static constexpr int kSlotTries = 512;
  static constexpr Bytes kSlotSpan = 8;  // times
  static constexpr std::uint64_t kTravel = 8;
  static constexpr std::size_t kStayed = 16;

  // `unit`: bytes to which guests are rounded up and aligned, relative to the arena. `lane`: its number among the lanes.
  Replay(Bytes unit, Shared& shared, LaneNumber lane);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Precondition of request(): a step is running.
  Grant request(Bytes size, Stream stream);
  Grant pass_upstream(Bytes size, Stream stream, Reason reason);
  bool release(BlockId id);  // true: upstream's

  // A free of a block that other streams may still use: the program is rid of it, its range stays taken until let_go().
  // Where `may_wait`, a request may be served there before: then its Grant says `waits`, and what it took the place of
  // is in awaited(). These numbers are not given to other blocks before drop_awaited(), and to let go of them is nothing.
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
  void set_may_wait(bool on) { may_wait_ = on; }  // off: what is held is late to every request

  // Makes [base, base + size) the arena. It may grow the present one; else that is retired: it goes when its last block
  // has gone.
  void reserve(std::uintptr_t base, Bytes size) { space_.reserve(base, size); }
  const Arena& arena() const { return space_.arena(); }

  // Retires the arena if nothing lives in it; the running step, if any, goes on without a plan.
  bool retire_idle_arena();

  // Bases of retired arenas in which nothing lives any more; the caller gives them back.
  std::vector<std::uintptr_t> take_dead_arenas() { return space_.take_dead(); }

  // For reports.
  LiveBlock describe(const Block& block) const;
  std::uint32_t requests() const { return recorder_.requests(); }  // of the step so far
  std::size_t planned_requests() const { return plan_ == nullptr ? 0 : plan_->half != 0 ? plan_->half : plan_->size(); }
  // For steps that are found (auto_lanes.hpp).
  const StepRecorder& recorder() const { return recorder_; }

  bool has_retired_arenas() const { return space_.has_retired(); }

  // Whether a step that has followed its plan exactly is to go on with this request, by that plan or another.
  enum class Course : std::uint8_t { unknown, goes_on, is_over };
  Course course(Bytes next) const;

  // Lets a step without a plan follow this one from here on, if it has begun as the plan does.
  void join(const PlanPtr& plan);

  // Ends what turns out to have been several steps; returns the last two, which began at these requests.
  std::pair<StepOutcome, StepOutcome> end_two_steps(RequestNumber first, RequestNumber second);

  Range range_of(BlockId id) const { return allocator::range_of(blocks_[id]); }
  void assert_invariants() const;

 private:
  enum class Alignment : std::uint8_t { exact, tentative, lost };
  Grant serve_planned(RequestNumber k, Block& block);
  Grant send_upstream(Block& block, Reason reason);
  Grant invite(Block& block, Reason reason);
  std::uintptr_t place_beyond(RequestNumber k, Bytes size);
  std::uintptr_t place_elsewhere(RequestNumber k, Bytes size);
  Grant take_in(Block& block, std::uintptr_t address, Reason reason);
  bool given_up() const {
    return (unknown_ > kFew && unknown_ * kShare > recorder_.requests()) ||
           travelled_ > kTravel * (recorder_.requests() + in_slot_.size());
  }
  bool wanted(Range r, RequestNumber until) const;
  RequestNumber align(Bytes size);
  RequestNumber track(Bytes size);
  bool goes_on(const Plan& other, Bytes size) const;
  bool follow_another(Bytes size);
  bool follow_shorter();
  void follow(PlanPtr plan);
  RequestNumber resynchronize(Bytes size);
  RequestNumber realign(Bytes size, Bytes previous, Alignment before) const;
  bool equals(RequestNumber k, Bytes size) const { return k < plan_->size() && plan_->requested[k] == size; }
  bool fits(RequestNumber k, Bytes size) const { return k < plan_->size() && size <= plan_->capacity[k]; }
  void skip_to(RequestNumber k);
  void go_back_to(RequestNumber k);
  void process_due(RequestNumber k);
  void make_late(BlockId id);
  void note_free(const Block& block);
  bool forget(BlockId id, Block& block);
  void note_stay(Bytes size);
  StepOutcome leave_plan();

  StepRecorder recorder_;
  Blocks& blocks_;  // of all lanes
  Counters& counters_;                   // of all lanes
  PlanPtr plan_;                 // valid: its placement was checked
  std::vector<PlanPtr> others_;  // what the step may follow instead
  std::vector<BlockId> in_slot_;  // per request number: the block on schedule there
  std::vector<Bytes> stayed_;     // sizes of blocks that stood in the way of whole steps

  ArenaSpace space_;
  const LaneNumber lane_;
  StepLocator locator_;
  RequestNumber located_ = kNoRequest;  // where it saw the present request
  std::uint64_t travelled_ = 0;         // requests that the cursor has passed over in this step, or gone back over
  RequestNumber cursor_ = 0;  // the request that the plan expects
  RequestNumber began_ = 0;   // the one at which the step began
  bool halfway_ = false;      // the last step was the first of a plan of two
  Alignment alignment_ = Alignment::exact;  // of the previous request
  Bytes previous_ = 0;                      // its size, where it was not exact
  std::uint32_t unknown_ = 0;               // requests of the step that were not recognised
  int lost_in_a_row_ = 0;                   // the last of them, without one in between that was
  bool exact_so_far_ = true;                // every request of the step was
  bool clean_ = true;
  bool may_wait_ = true;
};

}  // namespace stowplan::allocator
