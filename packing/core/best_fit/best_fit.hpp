// The best-fit heuristic of Sekiyama et al. 2018 (section 3.2), after Burke, Kendall and Whitwell 2004.
//
// The skyline is what has been built so far, seen from above: a row of *lines*, each an interval of time at a height;
// neighbours differ in height. Repeat until every block is placed:
//
//     choose the lowest line, the leftmost of equals;
//     among the blocks not placed whose lifetime lies inside it, place the one with the longest lifetime on it;
//     if there is none, lift the line to its lower neighbour (both, when equal) and merge.
//
//     bytes
//       |  ____              ______          the lowest line is B. A block whose lifetime lies inside B is put on it
//       |      |__A__       |                and cuts it in up to three; else B rises to the height of A
//       |            |__B___|
//       +------------------------> clock
//
// The paper scans all blocks at every step: quadratic. Here the lines wait in a heap; the blocks stand in a tree over
// (start, end) whose nodes know the best rank below them; and lines are found by their start in a set of small
// integers. Same result, O(n log n) in practice: a query may have to look at O(sqrt n) nodes.
//
// Beyond the paper, which has none of these:
//   gaps       the lifetime is the sum of the pieces' durations. A block may be placed where the skyline is as low as
//              the lowest line under *every* piece. Space below a window is not used by others.
//   alignment  the offset is the height rounded up; what is skipped is lost.
//   fixed      fixed blocks are not on the skyline but hang above it. A block that would collide with one goes up to
//              the next offset where it does not.
#pragma once

#include <cstdint>

#include "../problem.hpp"

namespace stowplan::packing {

// `order`: the n blocks, those preferred first (in the paper: by falling lifetime). `offsets`: n results.
void best_fit(const Problem& problem, const std::int64_t* order, Bytes* offsets);

}  // namespace stowplan::packing
