// Do any two rectangles of time by address overlap? One sweep over time.
//
// At each tick first what ends leaves, then what starts enters an ordered map of the live address ranges. As long as
// these are disjoint, a newcomer that overlaps anything overlaps the neighbour below or the one above. O(k log k).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "problem.hpp"

namespace stowplan::packing {

// Rectangle i is [start[i], end[i]) x [low[i], high[i]), not empty. Returns two that overlap, or {count, count}.
std::pair<std::size_t, std::size_t> first_conflict(std::size_t count, const Tick* start, const Tick* end,
                                                   const Bytes* low, const Bytes* high);

}  // namespace stowplan::packing
