#include "chain_contraction.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::ordering {
namespace {

// What an operator surely frees: storages whose last end it is, whatever ran before.
Bytes surely_freed(const Graph& g, Op op) {
  Bytes bytes = 0;
  for (const Row s : g.ending[op]) {
    if (g.ends[s].size() == 1) bytes += g.size[s];
  }
  return bytes;
}

// Whether v, which waits for u alone, may always run right after u.
bool follows_at_once(const Graph& g, Op u, Op v) {
  Bytes alloc = 0;
  for (const Row s : g.starting[v]) {
    if (g.starts[s].size() > 1) return false;  // what the two add together would depend on what ran before
    alloc += g.size[s];
  }
  return alloc <= surely_freed(g, v) && alloc + g.extra[v] <= g.extra[u] + surely_freed(g, u);
}

// Joins each v to its u, `into` a graph with fewer operators; chains are joined from their first on.
Contraction joined(const Contraction& c, const std::vector<Op>& leader) {
  const Graph& g = c.graph;
  std::vector<Op> number(g.count(), -1);
  std::vector<std::vector<Op>> members;
  Draft old = g.draft();
  std::vector<Bytes> extra;
  for (Op op = 0; op < g.count(); ++op) {
    if (leader[op] == op) {
      number[op] = static_cast<Op>(members.size());
      members.push_back(c.members[op]);
      extra.push_back(old.extra[op]);
      continue;
    }
    const Op to = number[op] = number[leader[op]];
    members[to].insert(members[to].end(), c.members[op].begin(), c.members[op].end());
    // Of the two fullest moments u's counts, at which v has not started anything yet.
    for (const Row s : g.starting[op]) extra[to] -= g.size[s];
  }
  Draft draft{extra, std::vector<std::vector<Op>>(members.size()), std::move(old.storages)};
  for (Op op = 0; op < g.count(); ++op) {
    for (const Op before : old.before[op]) {
      if (number[before] != number[op]) draft.before[number[op]].push_back(number[before]);
    }
  }
  for (auto& storage : draft.storages) {
    for (auto* ops : {&storage.starts, &storage.ends}) {
      for (Op& op : *ops) op = number[op];
    }
  }
  return {Graph(std::move(draft)), std::move(members)};
}

bool contract_once(Contraction& c) {
  const Graph& g = c.graph;
  std::vector<Op> leader(g.count());
  std::vector<char> taken(g.count(), 0);
  bool changed = false;
  for (Op v = 0; v < g.count(); ++v) {
    leader[v] = v;
    if (g.before[v].size() != 1) continue;
    const Op u = g.before[v].front();
    if (taken[u] || taken[v] || !follows_at_once(g, u, v)) continue;
    leader[v] = u;
    taken[u] = taken[v] = 1;
    changed = true;
  }
  if (changed) c = joined(c, leader);
  return changed;
}

Contraction reversed(const Contraction& c) {
  Contraction turned{c.graph.reversed(), {c.members.rbegin(), c.members.rend()}};
  for (auto& members : turned.members) std::reverse(members.begin(), members.end());
  return turned;
}

}  // namespace

std::vector<Op> Contraction::expand(const std::vector<Op>& order) const {
  std::vector<Op> all;
  for (const Op op : order) all.insert(all.end(), members[op].begin(), members[op].end());
  return all;
}

Contraction as_it_is(Graph graph) {
  Contraction c{std::move(graph), {}};
  for (Op op = 0; op < c.graph.count(); ++op) c.members.push_back({op});
  return c;
}

Contraction contract(Graph graph) {
  Contraction c = as_it_is(std::move(graph));
  if (c.graph.count() > kMostReach) return c;
  bool backwards = false;
  for (int idle = 0; idle < 2;) {
    bool changed = false;
    while (contract_once(c)) changed = true;
    idle = changed ? 0 : idle + 1;
    if (idle == 2) break;
    c = reversed(c);
    backwards = !backwards;
  }
  if (backwards) c = reversed(c);
  return c;
}

}  // namespace stowplan::ordering
