#include "beam.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace stowplan::ordering {
void Beam::begin(Bytes budget) {
  state_.undo_to(0);
  nodes_.clear();
  unused_.clear();
  levels_.clear();
  settle(budget);
  const auto length = static_cast<std::int32_t>(state_.length());
  nodes_.push_back({-1, 0, length, state_.live(), state_.key(), state_.order()});
  path_ = {0};
  levels_[length] = {0};
}

// Brings the counts to a node's: back to the last ancestor that both have, then on.
void Beam::visit(std::int32_t node) {
  std::vector<std::int32_t> ahead;
  const auto on_path = [&](std::int32_t one) {
    const auto depth = static_cast<std::size_t>(nodes_[one].depth);
    return depth < path_.size() && path_[depth] == one;
  };
  for (; !on_path(node); node = nodes_[node].parent) ahead.push_back(node);
  path_.resize(static_cast<std::size_t>(nodes_[node].depth) + 1);
  state_.undo_to(static_cast<std::size_t>(nodes_[node].length));
  for (auto next = ahead.rbegin(); next != ahead.rend(); ++next) {
    for (const Op op : nodes_[*next].ops) state_.run(op);
    path_.push_back(*next);
  }
}

void Beam::settle(Bytes budget) {
  while (state_.run_if_free(budget)) {
  }
}

void Beam::follow(std::int32_t node, Bytes budget, std::int32_t width) {
  visit(node);
  std::vector<Op> ready = state_.ready();
  std::sort(ready.begin(), ready.end());
  const std::size_t length = state_.length();
  for (const Op op : ready) {
    if (state_.step(op) > budget) continue;
    state_.run(op);
    settle(budget);
    ++looked_at_;
    add(node, length, width);
    state_.undo_to(length);
  }
}

// The set that state_ has, which was reached from the parent's `length` operators.
void Beam::add(std::int32_t parent, std::size_t length, std::int32_t width) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::int32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const std::int32_t at = unused_.back();
  unused_.pop_back();
  Node& node = nodes_[at];
  node.parent = parent;
  node.depth = nodes_[parent].depth + 1;
  node.length = static_cast<std::int32_t>(state_.length());
  node.live = state_.live();
  node.key = state_.key();
  node.ops.assign(state_.order().begin() + static_cast<std::ptrdiff_t>(length), state_.order().end());
  Level& level = levels_[node.length];
  level.push_back(at);
  if (level.size() > 4 * static_cast<std::size_t>(width) + 64) keep_best(level, width);  // to bound the memory
}

// Those with the fewest bytes alive, each set once; of equals the first by its key.
void Beam::keep_best(Level& level, std::int32_t width) {
  const auto rank = [&](std::int32_t i) {
    return std::make_tuple(nodes_[i].live, nodes_[i].key.low, nodes_[i].key.high, i);
  };
  std::sort(level.begin(), level.end(), [&](std::int32_t a, std::int32_t b) { return rank(a) < rank(b); });
  Level kept;
  for (const std::int32_t node : level) {
    const bool again = !kept.empty() && nodes_[kept.back()].key == nodes_[node].key;
    if (again || static_cast<std::int32_t>(kept.size()) == width)
      unused_.push_back(node);
    else
      kept.push_back(node);
  }
  // Neighbours have much in common.
  std::sort(kept.begin(), kept.end(),
            [&](std::int32_t a, std::int32_t b) { return nodes_[a].parent < nodes_[b].parent; });
  level = std::move(kept);
}

bool Beam::run(Bytes budget, std::int32_t width, Watch& watch) {
  begin(budget);
  while (!levels_.empty()) {
    const auto first = levels_.begin();
    const std::int32_t length = first->first;
    Level level = std::move(first->second);
    levels_.erase(first);
    keep_best(level, width);
    if (length == graph_.count()) {
      visit(level[0]);
      return true;
    }
    for (const std::int32_t node : level) {
      if (watch.expired()) return false;
      follow(node, budget, width);
    }
  }
  return false;
}

void beam(const Graph& graph, Incumbent& best, std::int32_t width) {
  Beam search(graph);
  // Below the best known by a part of the gap; where that fails, by less.
  for (Bytes margin = (best.peak() - best.lower_bound()) / 8; !best.over();) {
    const std::int64_t before = search.looked_at();
    const bool found = search.run(best.peak() - 1 - margin, width, best.watch());
    best.states += search.looked_at() - before;
    if (found) best.offer(search.order(), peak_of(graph, search.order()), Method::kBeam);
    if (!found && margin == 0) return;
    if (!found) margin /= 4;
  }
}

}  // namespace stowplan::ordering
