// The compiled solver as a whole: greedy descent, the way back up, local search.
#pragma once

#include <cstdint>
#include <vector>

#include "../simulator/simulator.hpp"
#include "control.hpp"
#include "descent.hpp"
#include "rebuild.hpp"

namespace stowplan::scheduling {

struct Task {
  const std::uint8_t* ways;                // (m,) a bit for each way that a storage may take; 0: not a storage
  std::vector<std::vector<Index>> groups;  // storages that may change together
  std::vector<std::vector<Index>> drops;   // of each storage the operators after which it goes; changed, too
  Places places;
  Bytes budget;
  double seconds;  // of the step as recorded
  bool coarse;     // change groups alone, and do not search
};

// From an order (n,) and ways (m,), valid ones, to better ones in their place. Effort is counted in evaluations after
// the greedy descent. Returns how many there were in all.
std::int64_t descend(const Graph& graph, const Rates& rates, Task& task, const Control& control, std::int64_t* order,
                     std::int64_t* way);

}  // namespace stowplan::scheduling
