// Local search by ruin and rebuild: disturb a part of the forward pass, and let the descent repair it.
//
//   storages  k k d d k d k k d k | d d d k k d d k | k d k k d ...      k: kept, d: dropped
//                                 |  disturbed      |
//             fall and rise, by the storages of the part and around it alone
//
// Single changes rarely leave a local optimum: to move what is kept from one operator to the next, both must change,
// and all that is recomputed from them. A part is kept as a whole, dropped as a whole, or changed at random; the
// descent then makes it fit the budget again, at a cost of some hundred evaluations. What is not slower than the best
// by more than a small share, which shrinks, is gone on from (record-to-record travel, Dueck 1993). Now and then an
// operator of the backward pass moves to another position between what it depends on and what depends on it (Shaw 1998;
// Schrimpf 2000). In a step without phases, where the best order for recomputing is seldom the one with the smallest
// peak, half of the parts are disturbed by moving their operators anywhere, and the descent repairs that, too.
#pragma once

#include <vector>

#include "control.hpp"
#include "descent.hpp"
#include "trial.hpp"

namespace stowplan::scheduling {

// Which operators may change places: for each, those that must run before it and after it. Empty where none may.
struct Places {
  std::vector<std::vector<Index>> before, after;
  std::vector<Index> movable;
};

// Until the control's effort, in evaluations, is spent. Leaves the trial at the best schedule met.
void rebuild(Trial& trial, Descent& descent, const Places& places, const Control& control, const Stopwatch& watch);

}  // namespace stowplan::scheduling
