#include "greedy.hpp"

#include <algorithm>
#include <tuple>

#include "partial_order.hpp"

namespace stowplan::ordering {

std::vector<Op> greedy(const Graph& graph) {
  State state(graph);
  while (!state.ready().empty()) {
    const auto rank = [&](Op op) { return std::make_tuple(state.net(op), state.step(op), op); };
    state.run(
        *std::min_element(state.ready().begin(), state.ready().end(), [&](Op a, Op b) { return rank(a) < rank(b); }));
  }
  return state.order();
}

}  // namespace stowplan::ordering
