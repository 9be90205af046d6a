#include "max_flow.hpp"

#include <algorithm>
#include <limits>

namespace stowplan::ordering {
namespace {

constexpr Bytes kInfinite = std::numeric_limits<Bytes>::max() / 4;

}  // namespace

LowestSet::LowestSet(const Graph& graph) : graph_(graph), node_(graph.count(), -1), seen_(graph.storages(), 0) {}

Bytes LowestSet::change(const std::vector<Op>& free, const std::vector<Side>& side, Op left_out) {
  edges_.clear();
  first_.clear();
  base_ = 0;
  add_node();
  add_node();
  for (const Op op : free) node_[op] = add_node();
  if (left_out >= 0) {
    for (const Row s : graph_.starting[left_out]) seen_[s] = 1;
  }
  for (const Op op : free) {
    for (const Op earlier : graph_.before[op]) {
      if (side[earlier] == Side::kFree) add_edge(node_[op], node_[earlier], kInfinite);
      if (side[earlier] == Side::kOut) add_edge(node_[op], kTarget, kInfinite);
    }
    for (const auto* lists : {&graph_.starting, &graph_.ending}) {
      for (const Row s : (*lists)[op]) add_storage(s, side);
    }
  }
  for (const Row s : rows_) seen_[s] = 0;
  rows_.clear();
  if (left_out >= 0) {
    for (const Row s : graph_.starting[left_out]) seen_[s] = 0;
  }
  return flow() - base_;
}

std::vector<Op> LowestSet::chosen(const std::vector<Op>& free) const {
  const std::vector<char> not_run = reaching_target();
  std::vector<Op> run;
  for (const Op op : free) {
    if (!not_run[node_[op]]) run.push_back(op);
  }
  return run;
}

void LowestSet::add_storage(Row s, const std::vector<Side>& side) {
  if (seen_[s]) return;
  seen_[s] = 1;
  rows_.push_back(s);
  bool begun = graph_.from_start[s] != 0, stays = graph_.to_end[s] != 0;
  for (const Op op : graph_.starts[s]) begun = begun || side[op] == Side::kIn;
  for (const Op op : graph_.ends[s]) stays = stays || side[op] == Side::kOut;
  const bool over =
      !stays && std::all_of(graph_.ends[s].begin(), graph_.ends[s].end(), [&](Op op) { return side[op] == Side::kIn; });
  if (over || (begun && stays)) return;  // gone, or alive, in any case
  if (begun) base_ += graph_.size[s];
  const std::int32_t from = begun ? kSource : add_node();
  const std::int32_t to = stays ? kTarget : add_node();
  add_edge(from, to, graph_.size[s]);
  if (!begun) {
    for (const Op op : graph_.starts[s]) {
      if (side[op] == Side::kFree) add_edge(node_[op], from, kInfinite);
    }
  }
  if (!stays) {
    for (const Op op : graph_.ends[s]) {
      if (side[op] == Side::kFree) add_edge(to, node_[op], kInfinite);
    }
  }
}

std::int32_t LowestSet::add_node() {
  first_.push_back(-1);
  return static_cast<std::int32_t>(first_.size()) - 1;
}

void LowestSet::add_edge(std::int32_t from, std::int32_t to, Bytes capacity) {
  edges_.push_back({to, first_[from], capacity});
  first_[from] = static_cast<std::int32_t>(edges_.size()) - 1;
  edges_.push_back({from, first_[to], 0});
  first_[to] = static_cast<std::int32_t>(edges_.size()) - 1;
}

Bytes LowestSet::flow() {
  Bytes total = 0;
  while (level()) {
    next_ = first_;
    while (const Bytes more = push(kSource, kInfinite)) total += more;
  }
  return total;
}

bool LowestSet::level() {
  level_.assign(first_.size(), -1);
  std::vector<std::int32_t> queue{kSource};
  level_[kSource] = 0;
  for (std::size_t head = 0; head < queue.size() && level_[kTarget] < 0; ++head) {
    for (std::int32_t e = first_[queue[head]]; e >= 0; e = edges_[e].next) {
      if (edges_[e].capacity == 0 || level_[edges_[e].to] >= 0) continue;
      level_[edges_[e].to] = level_[queue[head]] + 1;
      queue.push_back(edges_[e].to);
    }
  }
  return level_[kTarget] >= 0;
}

// One path from the node to the target, without recursion: a graph may be as deep as it has operators.
Bytes LowestSet::push(std::int32_t node, Bytes most) {
  std::vector<std::int32_t> path;
  while (node != kTarget) {
    std::int32_t& e = next_[node];
    while (e >= 0 && !(edges_[e].capacity > 0 && level_[edges_[e].to] == level_[node] + 1)) e = edges_[e].next;
    if (e >= 0) {
      path.push_back(e);
      node = edges_[e].to;
    } else {
      if (path.empty()) return 0;
      level_[node] = -1;  // a dead end
      node = edges_[path.back() ^ 1].to;
      path.pop_back();
    }
  }
  for (const std::int32_t e : path) most = std::min(most, edges_[e].capacity);
  for (const std::int32_t e : path) {
    edges_[e].capacity -= most;
    edges_[e ^ 1].capacity += most;
  }
  return most;
}

std::vector<char> LowestSet::reaching_target() const {
  std::vector<char> found(first_.size(), 0);
  std::vector<std::int32_t> stack{kTarget};
  found[kTarget] = 1;
  while (!stack.empty()) {
    const std::int32_t node = stack.back();
    stack.pop_back();
    for (std::int32_t e = first_[node]; e >= 0; e = edges_[e].next) {
      if (edges_[e ^ 1].capacity == 0 || found[edges_[e].to]) continue;
      found[edges_[e].to] = 1;
      stack.push_back(edges_[e].to);
    }
  }
  return found;
}

}  // namespace stowplan::ordering
