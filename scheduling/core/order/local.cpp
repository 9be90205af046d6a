#include "local.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "bounded_search.hpp"
#include "partial_order.hpp"

namespace stowplan::ordering {
namespace {

constexpr std::int32_t kFirstLength = 16;

std::vector<Bytes> steps_of(const Graph& graph, const std::vector<Op>& order) {
  State state(graph);
  std::vector<Bytes> steps;
  for (const Op op : order) {
    steps.push_back(state.step(op));
    state.run(op);
  }
  return steps;
}

class Mender {
 public:
  Mender(const Graph& graph, Incumbent& best, std::int64_t most)
      : graph_(graph), best_(best), most_(most), search_(graph) {}

  // Whether an order within the budget was made of the best one.
  bool mend(Bytes budget) {
    std::vector<Op> order = best_.order();
    while (!best_.over()) {
      const std::vector<Bytes> steps = steps_of(graph_, order);
      const auto high = std::max_element(steps.begin(), steps.end());
      if (*high <= budget) return best_.offer(order, *high, Method::kLocal);
      if (!mend_around(order, static_cast<std::int32_t>(high - steps.begin()), budget)) return false;
    }
    return false;
  }

 private:
  bool mend_around(std::vector<Op>& order, std::int32_t place, Bytes budget) {
    const auto n = static_cast<std::int32_t>(order.size());
    for (std::int32_t length = kFirstLength;; length *= 2) {
      // The place in the middle, near the window's end, near its beginning.
      for (const std::int32_t before : {length / 2, length - length / 8, length / 8}) {
        const std::int32_t first = std::max(0, place - before), last = std::min(n, place - before + length);
        const std::vector<Op> prefix(order.begin(), order.begin() + first);
        const std::vector<Op> window(order.begin() + first, order.begin() + last);
        const Verdict verdict = search_.decide(budget, most_, best_.watch(), prefix, window);
        best_.states += search_.looked_at();
        if (verdict == Verdict::kFound) {
          std::copy(search_.order().begin() + first, search_.order().end(), order.begin() + first);
          return true;
        }
        if (best_.over() || (first == 0 && last == n)) return false;
      }
    }
  }

  const Graph& graph_;
  Incumbent& best_;
  const std::int64_t most_;
  BudgetSearch search_;
};

}  // namespace

void local(const Graph& graph, Incumbent& best, std::int64_t most) {
  Mender mender(graph, best, most);
  for (Bytes margin = (best.peak() - best.lower_bound()) / 4; !best.over();) {
    if (mender.mend(best.peak() - 1 - margin)) continue;
    if (margin == 0) return;
    margin /= 4;
  }
}

}  // namespace stowplan::ordering
