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

#include <vector>

#include "graph.hpp"
#include "max_flow.hpp"

namespace stowplan::ordering {

class Bounds {
 public:
  explicit Bounds(const Graph& graph);

  // Of each operator.
  std::vector<Bytes> must_live() const;
  Bytes cut(Op op);

 private:
  // Bytes alive when exactly those before the operator have run, and those it starts.
  Bytes own(Op op, const std::vector<Side>& side) const;

  const Graph& graph_;
  Reach reach_;
  LowestSet lowest_;
};

}  // namespace stowplan::ordering
