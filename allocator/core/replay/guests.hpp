// Which requests become guests of the arena, and when the plan is given up for them.
//
// A request that the plan does not know, or has no room for, looks for a free range in the arena before it goes
// upstream, so that memory is not reserved twice. A guest must not be in the plan's way:
//
//   requests are recognised   it takes the best fit that the plan does not need for the next kHorizon requests
//   kLost in a row are not    it takes any: it is unknown what the plan will need
//   the plan is given up      all requests take any, for the rest of the step, planned or not: blocks placed by a plan
//                             that does not fit only break the arena up. That is so when more than one request in
//                             kShare was not recognised, and more than kFew were
//
// A guest that stayed on for more than a step has shown what blocks of its size do: the next one of that size goes
// upstream.
//
// O(kStayed) for a request that the plan does not serve; others cost one store.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan.hpp"

namespace stowplan::allocator {

class Guests {
 public:
  static constexpr RequestNumber kHorizon = 64;
  static constexpr std::uint32_t kLost = 32;
  static constexpr std::uint32_t kFew = 64;
  static constexpr std::uint32_t kShare = 4;
  static constexpr std::size_t kStayed = 16;

  Guests() { stayed_.reserve(kStayed); }  // a free must not fail

  void begin_step() { unknown_ = lost_in_a_row_ = 0; }

  // A request was served from its slot, or was not recognised.
  void note_planned() { lost_in_a_row_ = 0; }
  void note_unknown() {
    ++unknown_;
    ++lost_in_a_row_;
  }
  // The last request was none: it had no slot, and no memory elsewhere.
  void take_back() {
    --unknown_;
    --lost_in_a_row_;
  }
  bool any_unknown() const { return unknown_ > 0; }
  bool are_lost() const { return lost_in_a_row_ >= kLost; }
  // `requests`: of the step so far.
  bool are_too_many(std::uint32_t requests) const { return unknown_ > kFew && unknown_ * kShare > requests; }

  // A block of this size stood in the way of a whole step.
  void note_lasting(Bytes size) {
    if (is_known_to_last(size)) return;
    if (stayed_.size() >= kStayed) stayed_.erase(stayed_.begin());
    stayed_.push_back(size);
  }
  bool is_known_to_last(Bytes size) const { return std::find(stayed_.begin(), stayed_.end(), size) != stayed_.end(); }

 private:
  std::uint32_t unknown_ = 0;        // requests of the step that were not recognised
  std::uint32_t lost_in_a_row_ = 0;  // the last of them, without one in between that was
  std::vector<Bytes> stayed_;        // the last few sizes
};

}  // namespace stowplan::allocator
