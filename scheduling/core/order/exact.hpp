// The least peak by search, with proof where it ends in time.
//
//     budget   bound ...xxx.....................  best known      x: no order within it; the bound goes up
//                          .....vvv..v....v.....                  v: an order; the best known comes down
//
// The bound itself is the first budget, as it can mostly be reached, and then the next at which the search would have
// gone differently, for as long as that is cheap. Then budgets between the bound and the best known, by halves; one
// that is not decided within a number of sets is left to the next round, which looks at more. Each budget is tried on
// the graph and on its reverse: where one looks at every way to climb a hill, the other comes down it.
#pragma once

#include <cstdint>

#include "bounded_search.hpp"
#include "graph.hpp"
#include "incumbent.hpp"

namespace stowplan::ordering {

// A graph and its reverse, each with its search.
class Exact {
 public:
  Exact(const Graph& graph, Incumbent& best);

  // The bound, then budgets above it; each is left open after `most` sets.
  void round(std::int64_t most);

 private:
  // One way, and if it does not know the other; the incumbent is told what they say.
  Verdict ask(Bytes budget, std::int64_t most);
  Verdict ask(Bytes budget, std::int64_t most, bool backwards);

  const Graph& graph_;
  const Graph reverse_;
  Incumbent& best_;
  BudgetSearch forth_, back_;
};

}  // namespace stowplan::ordering
