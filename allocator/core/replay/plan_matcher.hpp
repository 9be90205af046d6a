// Which request of its plan each request of a step is, as long as steps are what the plan says, but for a few.
//
// A request of the size that the plan expects is *exact*. Otherwise, with the cursor at k:
//   it fits          (smaller) it takes the slot of k, *tentatively*; the cursor moves on
//   it does not fit  it has no slot: *lost*; the cursor stays. So does one of less than half the planned size, if the
//                    request before it was exact: it is more likely an extra one
// and the request after it, if that is not exact either, decides what had happened:
//   after lost       equals k + 1: another size had come in the place of k; the cursor moves on
//   after both       the two stand side by side a little ahead in the plan (at most kWindow): requests are missing;
//                    the cursor moves there
//   after tentative  it does not fit, but equals the slot just taken: the smaller one was an extra request; this one
//                    has no slot, and the cursor is right where it is
//   after lost       fits k + 1: as if it were equal, but tentatively
// The cursor never goes back. A wrong guess costs requests their planned address, never an overlap.
//
// Several plans. A step may be one of many (training, the short last batch, a length bucket). It begins with the plan
// that it is expected to follow. If it departs from that plan, after requests that were all exact, and another plan has
// the same beginning and goes on with this request, the step follows the other plan from there: always safe, and free
// of conflicts if the packer gave the common beginning the same offsets.
//
// O(1) per exact request; O(kWindow + plans) for another.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "arena_space.hpp"
#include "plan.hpp"
#include "plan_cursor.hpp"

namespace stowplan::allocator {

class PlanMatcher {
 public:
  static constexpr RequestNumber kWindow = 64;

  PlanMatcher(PlanCursor& at, ArenaSpace& space, Counters& counters) noexcept
      : at_(at), space_(space), counters_(counters) {}

  // Follows the cursor's plan, or one of `others`, from the beginning of a step. Without a plan it waits for one.
  void begin_step(std::vector<PlanPtr> others) {
    others_ = std::move(others);
    now_ = {};
  }

  // The plan's request that this one is, which the cursor passes, or kNoRequest.
  RequestNumber find(Bytes size) {
    if (!at_.equals(at_.next(), size) && !(now_.exact_so_far && follow_another(size))) return resynchronize(size);
    now_.last = Match::exact;
    return at_.pass();
  }
  // Forgets the last request, which upstream refused, if it has no slot; returns whether that is so.
  bool take_back() {
    if (now_.last != Match::lost) return false;
    now_ = before_;
    return true;
  }
  // An address for a guest; 0 if there is none.
  std::uintptr_t place_guest(Bytes size) const;

  void end_step();

 private:
  enum class Match : std::uint8_t { exact, tentative, lost };
  struct State {
    Bytes previous = 0;         // size of the previous request, if it was not exact
    Match last = Match::exact;  // how the previous request was found
    bool exact_so_far = true;   // every request of the step was
  };

  bool follow_another(Bytes size);
  RequestNumber resynchronize(Bytes size);
  RequestNumber find_both(Bytes previous, Bytes size, Match before) const;

  PlanCursor& at_;
  ArenaSpace& space_;
  Counters& counters_;
  std::vector<PlanPtr> others_;  // what the step may follow instead
  State now_, before_;           // before_: the last request that was not exact
};

}  // namespace stowplan::allocator
