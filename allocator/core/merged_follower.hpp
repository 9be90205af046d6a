// Which request of a merged plan (plan.hpp) each request of a step is.
//
// The steps of a merged plan depart from it all the time, so the step locator (step_locator.hpp) names the request, and
// the cursor goes there, back as well as ahead. Nothing here is ever exact: sizes lie between the smallest and the
// largest that were seen, and hundreds of requests are missing. A request that cannot have its slot may have another
// planned address:
//
//   its slot is too small   its own planned address all the same, if nothing lives in the range that it needs
//   or is taken             the smallest free slot of the same line of a loop in *another iteration*, at most kSlotSpan
//                           times as large, and as lasting
//
// Either way it is late, as a guest is: the plan does not know that it reaches so far, or that it is there. A guest
// that lasts goes high, to a range that the plan does not need before the guest's end, out of the way of those that
// come and go.
//
// A step that goes back and forth over more than kTravel times the requests of the plan and its own is *adrift*: its
// plan is given up. So what is due costs O(1) per request, amortized. O(kSlotTries) for a request that cannot have its
// slot.
#pragma once

#include <cstdint>

#include "arena_space.hpp"
#include "exact_follower.hpp"
#include "plan.hpp"
#include "plan_cursor.hpp"
#include "step_locator.hpp"
#include "step_recorder.hpp"

namespace stowplan::allocator {

class MergedFollower {
 public:
  static constexpr int kSlotTries = 512;
  static constexpr Bytes kSlotSpan = 8;  // times
  static constexpr std::uint64_t kTravel = 8;

  // Whether a plan is to be followed by this class.
  static bool follows(const Plan& plan) { return plan.merged(); }

  // Follows the cursor's plan from the beginning of a step.
  MergedFollower(PlanCursor& at, ArenaSpace& space, Counters& counters) noexcept
      : at_(at), space_(space), counters_(counters) {}

  // See ExactFollower.
  RequestNumber find(Bytes size);
  bool fits(RequestNumber k, Bytes size) const { return at_.fits(k, size); }
  std::uintptr_t place_elsewhere(RequestNumber k, Bytes size);
  std::uintptr_t place_guest(const Block& guest) const;

  // A block of this step is freed: the locator's evidence.
  void note_free(const Block& block, const profiler::StepRecorder& recorder) {
    if (!recorder.is_current(block.birth)) return;
    locator_.freed(at_.plan(), block.located, recorder.requests() - block.birth.request);
  }
  // `requests`: of the step so far.
  bool is_adrift(std::uint32_t requests) const { return travelled_ > kTravel * (requests + at_.plan().size()); }
  Course course(Bytes) const { return Course::unknown; }
  void end_step() {}

 private:
  void travel_to(RequestNumber k);
  bool needs(Range r, RequestNumber until) const;

  PlanCursor& at_;
  ArenaSpace& space_;
  Counters& counters_;
  StepLocator locator_;
  std::uint64_t travelled_ = 0;  // requests that the cursor has passed over, or gone back over
};

}  // namespace stowplan::allocator
