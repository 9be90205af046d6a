// Place blocks one after another, each into the smallest hole that takes it.
//
// For each block in the order given: among the blocks placed so far that are alive at the same time, find the holes in
// address; take the smallest hole in which the block fits (the lowest of equals), at its lowest aligned offset; else go
// above them all. Fixed blocks are placed before everything else.
//
//     bytes
//     11 |         c c c
//     10 |         c c c        x needs 2 bytes at the ticks 2 to 4, when a, b and c are alive. Between a and b there
//      9 |     . . .            are 3 bytes free, between b and c there are 2, above c no end. x goes to 8.
//      8 |     . . .
//      7 |     b b b b
//      6 |     b b b b
//    5-3 |     - - -
//    2-0 | a a a a a
//        +-0-1-2-3-4-5--> clock
//
// Pisarchyk & Lee 2020, section 5 (algorithm 3), where the order is by falling size. O(n (log n + d log d)) for d
// placed neighbours per block.
#pragma once

#include <cstdint>

#include "../problem.hpp"
#include "control.hpp"

namespace stowplan::packing {

// `order`: a permutation of the n blocks. `offsets`: n results. False: the time was over before all were placed.
bool greedy(const Problem& problem, const std::int64_t* order, const Control& control, Bytes* offsets);

}  // namespace stowplan::packing
