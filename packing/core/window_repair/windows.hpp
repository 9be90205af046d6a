// Lowers a placement window by window: see window_repair.hpp.
//
// Finds its windows with three structures over the blocks, O(n) in all: the tops in a heap (with leftovers, skipped
// when met), the lifetimes by start, and the ends, sorted (how many are alive).
#pragma once

#include <cstdint>

#include "../problem.hpp"
#include "control.hpp"

namespace stowplan::packing {

// Improves a valid placement in place, until its peak is the control's target, the effort is spent or the watch has
// expired. Returns the peak.
Bytes repair_windows(const Problem& problem, const Control& control, const Stopwatch& watch, std::int64_t effort,
                     Bytes* offset);

}  // namespace stowplan::packing
