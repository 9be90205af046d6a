// Blocks by what conflicts with them, each as low as it can; what reaches the best peak goes earlier the next time.
//
//     bytes |       +-c-+  - - - - - the best peak     a -- b, c -- a: conflicts. d conflicts with c alone, so it
//           | +---a---+-+                              may lie below both a and b, whatever their lifetimes are.
//           | +--+----+ +--d--+                        c reaches the peak: the run ends. In the next one c is placed
//           | +b-+      +-----+                        earlier, and a, its neighbour, a little earlier.
//           +-------------------> clock
//
// Pairs that are kept apart are conflicts like any others, so time has no meaning here: a skyline, windows or a fullest
// moment help little where most conflicts are of blocks that are never alive together. A block's first priority is its
// size times the sizes of all that conflict with it.
//
// Squeaky wheel optimization (Joslin and Clements 1999) over a first fit on the conflict graph. O(m) memory for m pairs
// of pieces in conflict, O(n log n + m log m) time for a run.
#pragma once

#include "../problem.hpp"
#include "control.hpp"

namespace stowplan::packing {

// Writes problem.n offsets and returns the peak; kNoCeiling where the time is over before all are placed. Effort is
// counted in neighbours looked at; one run is made, whatever it takes. Without an effort it goes on until the time
// limit.
Bytes by_conflicts(const Problem& problem, const Control& control, Bytes* offset);

}  // namespace stowplan::packing
