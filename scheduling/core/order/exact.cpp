#include "exact.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace stowplan::ordering {
namespace {

constexpr int kHalvings = 8;

}  // namespace

Exact::Exact(const Graph& graph, Incumbent& best)
    : graph_(graph), reverse_(graph.reversed()), best_(best), forth_(graph_), back_(reverse_) {}

Verdict Exact::ask(Bytes budget, std::int64_t most) {
  const Verdict verdict = ask(budget, most, false);
  return verdict == Verdict::kUnknown && !best_.over() ? ask(budget, most, true) : verdict;
}

Verdict Exact::ask(Bytes budget, std::int64_t most, bool backwards) {
  BudgetSearch& search = backwards ? back_ : forth_;
  const Verdict verdict = search.decide(budget, most, best_.watch());
  best_.states += search.looked_at();
  if (verdict == Verdict::kNone) best_.raise(search.next_budget());
  if (verdict == Verdict::kFound) {
    std::vector<Op> order = search.order();
    if (backwards) {
      std::reverse(order.begin(), order.end());
      for (Op& op : order) op = graph_.count() - 1 - op;
    }
    best_.offer(order, peak_of(graph_, order), Method::kExact);
  }
  return verdict;
}

void Exact::round(std::int64_t most) {
  const std::int64_t last = best_.states + most;
  while (!best_.over() && best_.states < last) {
    if (ask(best_.lower_bound(), last - best_.states) == Verdict::kUnknown) break;
  }
  // By halves: where nothing can be decided, first towards the best known, then down to the bound.
  Bytes low = best_.lower_bound();
  for (int i = 0; i < kHalvings && low < best_.peak() - 1 && !best_.over(); ++i) {
    const Bytes budget = low + (best_.peak() - low) / 2;
    if (ask(budget, most) != Verdict::kFound) low = std::max(budget, best_.lower_bound());
  }
  Bytes high = low;
  while (best_.lower_bound() < high && !best_.over()) {
    const Bytes budget = best_.lower_bound() + (high - best_.lower_bound()) / 2;
    if (ask(budget, most) == Verdict::kUnknown) high = budget;
    high = std::min(high, best_.peak());
  }
}

}  // namespace stowplan::ordering
