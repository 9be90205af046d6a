// Branch and bound for Dynamic Storage Allocation: decides a capacity, or minimises the peak and proves it.
//
// The lowest block first. Every placement can be compacted until each block rests on another (or on 0), and its blocks
// can then be listed by rising offset; so it is enough to choose, again and again, which block comes next at the lowest
// offset available. A block that is passed over there has to be lifted by one that is still to come.
//
//       |   +--+            the lowest free offset is where a and b stand
//       |   | c|   +-----+  branch 1: a is placed here
//       |+--+--+.. |     |  branch 2: a is not, so some block that is still open goes below it:
//       || a? :    |     |            its offset is at least the lowest end which one of those can have
//       +-----------------> clock
//
// What cuts the tree:
// - sections: where the lowest offset left plus the load left exceeds the capacity, nothing can be placed;
// - dominance: a passed-over block that nothing can come in the way of should have been placed;
// - decomposition: blocks not placed that no longer share a section are solved one group after the other;
// - conflicts (conflict.cpp): the decisions that a refutation rests on; others are jumped over;
// - a table of refuted states: what is left depends only on the open blocks and their offsets, not on the way there;
// - restarts over several orders of preference, with rising limits.
//
// Sources: M. D. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning",
// ASPLOS 2023 (canonical order, sections, decomposition, orders of preference); P. Prosser, "Hybrid algorithms for the
// constraint satisfaction problem", Computational Intelligence 9(3), 1993 (conflict-directed backjumping).
//
// Exponential in the worst case; a node costs O(live pieces' sections). Memory O(n * n / 8 + conflicts) bytes and the
// table; the search recurses as deep as there are blocks.
#pragma once

#include <vector>

#include "../problem.hpp"
#include "control.hpp"

namespace stowplan::packing {

struct ExactResult {
  std::vector<Bytes> offsets;  // the best placement found; empty: none
  Bytes lower_bound = 0;       // proved
};

// Decides whether a peak of `capacity` can be, or where that is negative, looks for the smallest one below `known`, the
// peak of a placement that the caller has. All blocks are one component, each with a piece. Effort is counted in nodes.
ExactResult solve_exact(const Problem& problem, Bytes capacity, Bytes known, const Control& control);

}  // namespace stowplan::packing
