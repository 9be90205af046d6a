// Lower bounds of the peak over all orders, from one operator at a time.
//
// When an operator begins, all before it have run and it and all after it have not; of the others any closed set may
// have. So alive are at least its own bytes and
//
//   must_live     every storage that something before it starts and it, or something after it, ends: O(n * storages)
//   cut           the fewest bytes over all closed sets between the two: a minimum cut (max_flow.hpp), never less
//
// No order has a smaller peak than the greatest of these.
#pragma once

#include "graph.hpp"
#include "incumbent.hpp"

namespace stowplan::ordering {

// Raise the bound: to what is alive at both ends, and by `must_live` of all operators; and by the cuts of those at
// which the best order is above it.
void raise_by_must_live(const Graph& graph, Incumbent& best);
void raise_by_cuts(const Graph& graph, Incumbent& best);

}  // namespace stowplan::ordering
