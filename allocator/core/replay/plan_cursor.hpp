// Where in its plan a step is, and which blocks are in their slots.
//
//     request     0     1     2     3     4       0 to 2 have come, 3 is next
//     slot       [A]   [ ]   [C]    .     .       A and C live where the plan puts them; 1 was freed, or is elsewhere
//     due at                       {0}            so A, if it is alive when 3 comes, is late from then on
//
// Before request k is served, the blocks *due* at k (plan.hpp) are looked at, and one that is still alive becomes late
// (arena_space.hpp). So slots hold only what the plan knows to be alive at k, which cannot overlap the planned range of
// k. What is due at requests that the cursor passes over is due all the same.
//
// Another plan may take over: whatever lives in the slots of the plan that is left becomes late.
//
// Steps in turn (plan.hpp): where a step ends before the end of the plan, the next one goes on there, if it follows the
// same plan; what is alive stays in its slots.
//
// O(1) per request, amortized: each block is due once a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "arena_space.hpp"
#include "block.hpp"
#include "plan.hpp"

namespace stowplan::allocator {

class PlanCursor {
 public:
  explicit PlanCursor(ArenaSpace& space) : space_(space) {}

  bool has_plan() const { return plan_ != nullptr; }
  // Precondition of all that follows but begin_step(), follow() and clear(): there is a plan.
  const Plan& plan() const { return *plan_; }
  RequestNumber next() const { return next_; }  // the request that the plan expects
  RequestNumber end() const { return static_cast<RequestNumber>(plan_->size()); }
  RequestNumber passed() const { return next_ - began_; }  // how many of the plan's requests lie behind, in this step
  // Where the step ends, if it is as planned.
  RequestNumber step_end() const { return began_ + plan_->step_size(); }
  std::uint64_t prefix() const { return plan_->prefix_of(began_, next_); }  // of the step so far, if it was as planned
  bool has_skipped() const { return skipped_; }  // whether a planned request of this step did not come
  // Of the whole step.
  std::size_t planned_requests() const { return plan_ == nullptr ? 0 : plan_->step_size(); }
  bool equals(RequestNumber k, Bytes size) const { return k < plan_->size() && plan_->requested[k] == size; }
  bool fits(RequestNumber k, Bytes size) const { return k < plan_->size() && size <= plan_->capacity[k]; }

  // Starts a step that follows this plan, or none.
  void begin_step(PlanPtr plan);
  // Follows another plan, or none, in which as many requests lie behind.
  void follow(PlanPtr plan);
  // Passes over the rest of the step; returns how many requests are missing.
  RequestNumber end_step();

  // Passes the next request, which has come; returns its number.
  RequestNumber pass() {
    make_due_late(next_);
    return next_++;
  }
  void skip_to(RequestNumber k);

  void put(RequestNumber k, BlockId id) { in_slot_[k] = id; }
  void clear(RequestNumber k) { in_slot_[k] = kNoBlock; }
  void make_late(RequestNumber k) {
    if (in_slot_[k] == kNoBlock) return;
    space_.make_late(in_slot_[k]);
    clear(k);
  }

  void assert_invariants() const;

 private:
  void make_due_late(RequestNumber k) {
    for (std::uint32_t i = plan_->due_begin[k]; i < plan_->due_begin[k + 1]; ++i) make_late(plan_->due[i]);
  }

  ArenaSpace& space_;
  PlanPtr plan_;                  // valid: its placement was checked
  std::vector<BlockId> in_slot_;  // by request number
  RequestNumber next_ = 0;
  RequestNumber began_ = 0;       // the request at which the step began
  RequestNumber goes_on_at_ = 0;  // where the next step begins, if it follows the same plan
  bool skipped_ = false;
};

}  // namespace stowplan::allocator
