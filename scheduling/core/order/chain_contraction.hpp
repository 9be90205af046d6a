// Makes a graph smaller without losing the best order: joins operators that may always run one right after the other.
//
//     u --> v         nothing but u keeps v waiting; with u done, v always fits where u did, and leaves no more
//      \              bytes alive than there were: so in any order v can be moved to where u has just run
//       w             and no moment is fuller than before
//
// (A view of what u wrote; an operator in place; an update as soon as its gradient is there.) The same on the graph
// reversed joins an operator to the one right before which it may always run. Repeated until nothing changes.
//
// Whether bytes are always less is asked of the fewest operators that can have run before v: bytes alive are
// submodular, so v frees no less in any larger set. Generalized pebbling of trees has the rule for a single budget
// (Liu, SIAM J. Algebraic Discrete Methods 8(3), 1987).
#pragma once

#include <vector>

#include "graph.hpp"

namespace stowplan::ordering {

struct Contraction {
  Graph graph;
  std::vector<std::vector<Op>> members;  // of each operator of the graph: those that it stands for, in their order

  std::vector<Op> expand(const std::vector<Op>& order) const;
};

// Nothing joined: each operator stands for itself.
Contraction as_it_is(Graph graph);

Contraction contract(Graph graph);

}  // namespace stowplan::ordering
