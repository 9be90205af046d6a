// Place blocks one after another, each into the smallest hole that takes it.
//
// For each block in the order given: among the blocks placed so far that are alive at the same time, find the holes in
// address; take the smallest hole in which the block fits (the lowest of equals), at its lowest aligned offset; else go
// above them all. Fixed blocks are placed before everything else.
//
//     bytes
//      8 |        ++++          the new block ++ is alive together with a, b and c: the hole between a and b
//      7 |  cccc  ++++          (4 bytes) takes it, the space above b is unbounded
//        ...
//
// Pisarchyk & Lee 2020, section 5 (algorithm 3), where the order is by falling size. O(n (log n + d log d)) for d
// placed neighbours per block.
#pragma once

#include <cstdint>

#include "problem.hpp"

namespace stowplan::packing {

// `order`: a permutation of the n blocks. `offsets`: n results.
void greedy(const Problem& problem, const std::int64_t* order, Bytes* offsets);

}  // namespace stowplan::packing
