#include "bounds.hpp"

#include <algorithm>

namespace stowplan::ordering {

Bounds::Bounds(const Graph& graph) : graph_(graph), reach_(graph.before.copy()), lowest_(graph) {}

std::vector<Bytes> Bounds::must_live() const {
  std::vector<Bytes> bound = graph_.extra;
  for (Row s = 0; s < graph_.storages(); ++s) {
    const auto starts = graph_.starts[s], ends = graph_.ends[s];
    for (Op op = starts.size() > 0 ? *std::min_element(starts.begin(), starts.end()) : 0; op < graph_.count(); ++op) {
      const bool begun = graph_.from_start[s] || std::any_of(starts.begin(), starts.end(), [&](Op start) {
                           return start == op || reach_.precedes(start, op);
                         });
      const bool stays = graph_.to_end[s] || std::any_of(ends.begin(), ends.end(),
                                                         [&](Op end) { return end == op || reach_.precedes(op, end); });
      if (begun && stays) bound[op] += graph_.size[s];
    }
  }
  return bound;
}

Bytes Bounds::cut(Op op) {
  std::vector<Side> side(graph_.count(), Side::kFree);
  std::vector<Op> free;
  for (Op other = 0; other < graph_.count(); ++other) {
    if (reach_.precedes(other, op))
      side[other] = Side::kIn;
    else if (other == op || reach_.precedes(op, other))
      side[other] = Side::kOut;
    else
      free.push_back(other);
  }
  return own(op, side) + lowest_.change(free, side, op);
}

Bytes Bounds::own(Op op, const std::vector<Side>& side) const {
  Bytes bytes = graph_.extra[op];
  for (Row s = 0; s < graph_.storages(); ++s) {
    const auto starts = graph_.starts[s], ends = graph_.ends[s];
    const bool begun = graph_.from_start[s] || std::any_of(starts.begin(), starts.end(), [&](Op start) {
                         return start == op || side[start] == Side::kIn;
                       });
    const bool stays =
        graph_.to_end[s] || std::any_of(ends.begin(), ends.end(), [&](Op end) { return side[end] != Side::kIn; });
    if (begun && stays) bytes += graph_.size[s];
  }
  return bytes;
}

}  // namespace stowplan::ordering
