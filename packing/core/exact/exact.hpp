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
// table. Components of more than 5,000 blocks are left alone: unknown, or feasible with the incumbent.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "../problem.hpp"

namespace stowplan::packing {

enum class Status { optimal, feasible, infeasible, unknown };

struct ExactOptions {
  Bytes capacity = -1;                                          // decide this one; -1: minimise
  double time_limit = std::numeric_limits<double>::infinity();  // seconds
  std::uint64_t node_limit = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t seed = 0;
  const std::atomic<bool>* cancel = nullptr;
  const Bytes* incumbent = nullptr;  // offsets of a valid placement to start from, or null
  // Called after every improvement, with the best peak, the proven bound and the nodes so far. False stops the search.
  bool (*progress)(void* context, Bytes peak, Bytes bound, std::uint64_t nodes) = nullptr;
  void* context = nullptr;
};

struct ExactResult {
  // With a capacity: feasible (optimal, if the peak is the lower bound), infeasible or unknown.
  // Without: optimal, feasible, or unknown when not even a first placement was found.
  Status status = Status::unknown;
  Bytes peak = 0;              // of the offsets, where there are any
  Bytes lower_bound = 0;       // proved; above the capacity where that is infeasible
  std::vector<Bytes> offsets;  // empty for infeasible and unknown
  std::uint64_t nodes = 0;
  std::string won_by;  // the order of preference that found the placement
};

ExactResult solve_exact(const Problem& problem, const ExactOptions& options);

}  // namespace stowplan::packing
