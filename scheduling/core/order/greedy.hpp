// List scheduling: of the operators that may run, always the one after which the fewest bytes are alive; of equals,
// the one with the less full moment, then the first. The baseline of every other solver. O(n * ready).
#pragma once

#include <vector>

#include "graph.hpp"

namespace stowplan::ordering {

std::vector<Op> greedy(const Graph& graph);

}  // namespace stowplan::ordering
