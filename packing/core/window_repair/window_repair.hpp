// Packing 10^4 to 10^6 blocks: a skyline of blocks that fit closely, then repair where it sticks out.
//
// 1. *Starts.* Blocks that are plain rectangles are stacked by the skyline rule of skyline_refill.hpp: the block that
//    pays best, by its worth (priority_weights.hpp: does it live at crowded moments, does it live long?) and by the
//    slivers that it leaves beside itself. Blocks with gaps stand where best fit has put them, fixed ones where they
//    must be.
// 2. *Repair* (windows.hpp). Only the tallest block determines the peak. Take a window of time around it, empty it of
//    all blocks that live inside, and refill it around those that reach in from outside, by other worths, until the
//    window is lower than it was. Then take the block that is the tallest now. Windows that resist are tried again
//    wider.
//
//     bytes |          ___  <- tallest
//           |   _____ |   |____          a window: blocks that cross its borders (#) stay where they are,
//           |  #|   |_|   | |##          all others in it are placed again
//           |  ##|__|___|___|#
//           +---[--- window ---]--> clock
//
// Why it works: lifetimes are short against the whole, so windows are nearly independent, and a moment at which the
// live sum comes near the lower bound is rare. A start wastes 1 to 5 % everywhere; the waste matters at a few moments.
//
// Time: O(n log n) in practice for a start, O(w log w) for an attempt on a window of w blocks. Memory O(n): no pairs of
// blocks are ever stored. The skyline is Sekiyama et al. 2018 (section 3.2, after Burke, Kendall and Whitwell 2004);
// the worths, the fit and the repair are ours.
#pragma once

#include "../problem.hpp"
#include "control.hpp"

namespace stowplan::packing {

// `offset`: problem.n results; before, valid offsets of the blocks that are no plain rectangles or fixed, which stay.
// Returns the peak; kNoCeiling where the time is over before all are placed. Effort is counted in blocks handled, and
// in looks at what may be placed; one start is made, whatever it takes. Equal seeds and efforts without a time limit
// give equal results. One thread.
Bytes window_repair(const Problem& problem, const Control& control, Bytes* offset);

}  // namespace stowplan::packing
