#include "bounds.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "max_flow.hpp"
#include "partial_order.hpp"

namespace stowplan::ordering {
namespace {

// Where all others stand when an operator begins: those that neither come before it nor after it are free.
std::vector<Side> sides(const Graph& graph, const Reach& reach, Op op) {
  std::vector<Side> side(graph.count(), Side::kFree);
  for (Op other = 0; other < graph.count(); ++other) {
    if (reach.precedes(other, op)) side[other] = Side::kIn;
    if (other == op || reach.precedes(op, other)) side[other] = Side::kOut;
  }
  return side;
}

// Bytes alive then, and those that the operator starts, while no free one has run; or, with `certainly`, which ever
// have.
Bytes alive(const Graph& graph, Op op, const std::vector<Side>& side, bool certainly) {
  Bytes bytes = graph.extra[op];
  for (Row s = 0; s < graph.storages(); ++s) {
    const auto starts = graph.starts[s], ends = graph.ends[s];
    const bool begun = graph.from_start[s] || std::any_of(starts.begin(), starts.end(), [&](Op start) {
                         return start == op || side[start] == Side::kIn;
                       });
    const bool stays = begun && (graph.to_end[s] || std::any_of(ends.begin(), ends.end(), [&](Op end) {
                                   return side[end] == Side::kOut || (side[end] == Side::kFree && !certainly);
                                 }));
    if (stays) bytes += graph.size[s];
  }
  return bytes;
}

Bytes cut(const Graph& graph, const Reach& reach, LowestSet& lowest, Op op) {
  const std::vector<Side> side = sides(graph, reach, op);
  std::vector<Op> free;
  for (Op other = 0; other < graph.count(); ++other) {
    if (side[other] == Side::kFree) free.push_back(other);
  }
  return alive(graph, op, side, false) + lowest.change(free, side, op);
}

}  // namespace

void raise_by_must_live(const Graph& graph, Incumbent& best) {
  Bytes at_start = 0, at_end = 0;
  for (Row s = 0; s < graph.storages(); ++s) {
    if (graph.from_start[s]) at_start += graph.size[s];
    if (graph.to_end[s]) at_end += graph.size[s];
  }
  best.raise(std::max(at_start, at_end));
  if (graph.count() > kMostReach) return;
  const Reach reach(graph.before.copy());
  Bytes most = 0;
  for (Op op = 0; op < graph.count(); ++op) most = std::max(most, alive(graph, op, sides(graph, reach, op), true));
  best.raise(most);
}

void raise_by_cuts(const Graph& graph, Incumbent& best) {
  if (graph.count() > kMostReach) return;
  const Reach reach(graph.before.copy());
  LowestSet lowest(graph);
  std::vector<std::pair<Bytes, Op>> steps;
  State state(graph);
  for (const Op op : best.order()) {
    steps.emplace_back(state.step(op), op);
    state.run(op);
  }
  std::sort(steps.rbegin(), steps.rend());
  for (const auto& [step, op] : steps) {
    if (step <= best.lower_bound() || best.over()) break;
    best.raise(cut(graph, reach, lowest, op));
  }
}

}  // namespace stowplan::ordering
