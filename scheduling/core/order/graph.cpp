#include "graph.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "partial_order.hpp"

namespace stowplan::ordering {
namespace {

// Keeps of a storage's operators those that no other of them comes before (after, with `last`).
void keep_outermost(std::vector<Op>& ops, const Reach& reach, bool last) {
  std::vector<Op> kept;
  for (const Op op : ops) {
    const bool inner = std::any_of(
        ops.begin(), ops.end(), [&](Op other) { return last ? reach.precedes(op, other) : reach.precedes(other, op); });
    if (!inner) kept.push_back(op);
  }
  ops = std::move(kept);
}

void sort_unique(std::vector<Op>& ops) {
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
}

void leave_out_what_follows(Draft& draft) {
  const Reach reach(draft.before);
  for (auto& before : draft.before) keep_outermost(before, reach, true);
  for (auto& storage : draft.storages) {
    keep_outermost(storage.starts, reach, false);
    keep_outermost(storage.ends, reach, true);
  }
}

// Joins storages that always come and go together; what one operator alone has goes to its extra bytes.
void join_storages(Draft& draft) {
  std::map<std::tuple<bool, bool, std::vector<Op>, std::vector<Op>>, Bytes> joined;
  for (auto& s : draft.storages) {
    if (s.size == 0) continue;
    if (!s.from_start && !s.to_end && s.starts.size() == 1 && s.starts == s.ends) {
      draft.extra[s.starts[0]] += s.size;
      continue;
    }
    joined[{s.from_start, s.to_end, std::move(s.starts), std::move(s.ends)}] += s.size;
  }
  draft.storages.clear();
  for (const auto& [key, size] : joined) {
    const auto& [from_start, to_end, starts, ends] = key;
    draft.storages.push_back({size, from_start, to_end, starts, ends});
  }
}

}  // namespace

Reach::Reach(const std::vector<std::vector<Op>>& before)
    : words_((before.size() + 63) / 64), before_(words_ * before.size(), 0) {
  for (std::size_t op = 0; op < before.size(); ++op) {
    std::uint64_t* row = &before_[op * words_];
    for (const Op other : before[op]) {
      const std::uint64_t* earlier = &before_[static_cast<std::size_t>(other) * words_];
      for (std::size_t w = 0; w <= static_cast<std::size_t>(other) / 64; ++w) row[w] |= earlier[w];
      row[other >> 6] |= std::uint64_t{1} << (other & 63);
    }
  }
}

Graph::Graph(Draft draft) {
  const auto n = static_cast<std::int32_t>(draft.extra.size());
  for (auto& list : draft.before) sort_unique(list);
  for (auto& storage : draft.storages) {
    if (storage.from_start) storage.starts.clear();
    if (storage.to_end) storage.ends.clear();
    sort_unique(storage.starts);
    sort_unique(storage.ends);
  }
  if (n <= kMostReach) leave_out_what_follows(draft);
  join_storages(draft);
  extra = std::move(draft.extra);
  before = Lists(draft.before);
  after = before.transposed(n);
  std::vector<std::vector<Op>> first, last;
  for (auto& storage : draft.storages) {
    size.push_back(storage.size);
    from_start.push_back(storage.from_start);
    to_end.push_back(storage.to_end);
    first.push_back(std::move(storage.starts));
    last.push_back(std::move(storage.ends));
  }
  starts = Lists(first);
  ends = Lists(last);
  starting = starts.transposed(n);
  ending = ends.transposed(n);
}

Draft Graph::draft() const {
  Draft copy{extra, before.copy(), {}};
  for (Row s = 0; s < storages(); ++s) {
    copy.storages.push_back({size[s],
                             from_start[s] != 0,
                             to_end[s] != 0,
                             {starts[s].begin(), starts[s].end()},
                             {ends[s].begin(), ends[s].end()}});
  }
  return copy;
}

Graph Graph::reversed() const {
  const std::int32_t n = count();
  auto turned = [n](Lists::Range ops) {
    std::vector<Op> result;
    for (const Op op : ops) result.push_back(n - 1 - op);
    return result;
  };
  Draft copy;
  for (Op op = n - 1; op >= 0; --op) {
    copy.extra.push_back(extra[op]);
    copy.before.push_back(turned(after[op]));
  }
  for (Row s = 0; s < storages(); ++s) {
    copy.storages.push_back({size[s], to_end[s] != 0, from_start[s] != 0, turned(ends[s]), turned(starts[s])});
  }
  return Graph(std::move(copy));
}

Bytes peak_of(const Graph& graph, const std::vector<Op>& order) {
  State state(graph);
  Bytes peak = 0;
  for (const Op op : order) {
    peak = std::max(peak, state.step(op));
    state.run(op);
  }
  return peak;
}

}  // namespace stowplan::ordering
