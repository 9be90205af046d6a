// One solver, or several in turn, for one graph.
#pragma once

#include <cstdint>
#include <vector>

#include "control.hpp"
#include "graph.hpp"
#include "incumbent.hpp"

namespace stowplan::ordering {

enum class Solver : int { kGreedy, kExact, kLocal, kAuto };

struct Answer {
  std::vector<Op> order;
  Bytes lower_bound = 0;
  Method found_by = Method::kJoined;
  std::int64_t states = 0;  // sets of operators looked at
};

// Orders a step graph; the order recorded, 0 to n - 1, is the first to be beaten.
Answer solve(Draft draft, Solver solver, const Control& control);

// The same of a graph as it is. The incumbent ends with the best order found and the bound proved.
void solve(const Graph& graph, Solver solver, Incumbent& best);

}  // namespace stowplan::ordering
