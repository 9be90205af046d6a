#include "solver.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "bounds.hpp"
#include "chain_contraction.hpp"
#include "exact.hpp"
#include "local.hpp"
#include "partial_order.hpp"

namespace stowplan::ordering {
namespace {

// Sets that a search of the first round looks at for one budget; each round has four times those of the one before.
constexpr std::int64_t kSets = 1'000;
constexpr int kRounds = 16;  // the last looks at 10^12 sets

// List scheduling: of the operators that may run, always the one after which the fewest bytes are alive; of equals,
// the one with the less full moment, then the first. The baseline of every other solver. O(n * ready).
std::vector<Op> greedy(const Graph& graph) {
  State state(graph);
  while (!state.ready().empty()) {
    const auto rank = [&](Op op) { return std::make_tuple(state.net(op), state.step(op), op); };
    state.run(
        *std::min_element(state.ready().begin(), state.ready().end(), [&](Op a, Op b) { return rank(a) < rank(b); }));
  }
  return state.order();
}

}  // namespace

Answer solve(Draft draft, Solver solver, const Control& control) {
  Graph whole(std::move(draft));
  // The baseline has no help.
  const Contraction small = solver == Solver::kGreedy ? as_it_is(std::move(whole)) : contract(std::move(whole));
  std::vector<Op> recorded(static_cast<std::size_t>(small.graph.count()));
  std::iota(recorded.begin(), recorded.end(), 0);
  Incumbent best(small.graph, control, recorded);
  solve(small.graph, solver, best);
  return {small.expand(best.order()), best.lower_bound(), best.found_by(), best.states};
}

void solve(const Graph& graph, Solver solver, Incumbent& best) {
  if (solver == Solver::kGreedy || solver == Solver::kAuto) {
    const std::vector<Op> order = greedy(graph);
    best.offer(order, peak_of(graph, order), Method::kGreedy);
  }
  raise_by_must_live(graph, best);
  if (solver == Solver::kGreedy) return;
  const bool all = solver == Solver::kAuto;
  const auto exact = all || solver == Solver::kExact ? std::make_unique<Exact>(graph, best) : nullptr;
  std::int64_t sets = kSets;
  // Of several, each leaves time to the others where a graph is too large for a round of it.
  const auto allow = [&](double share) { best.watch().allow(all ? share : 1); };
  for (int round = 0; round < kRounds; ++round) {
    allow(1);
    if (best.over()) return;
    if (exact) {
      allow(0.3);
      exact->round(sets);
    }
    if (round == 0 && exact) {
      allow(0.1);
      raise_by_cuts(graph, best);
    }
    if (all || solver == Solver::kLocal) {
      allow(0.5);
      local(graph, best, sets);
    }
    sets *= 4;
  }
}

}  // namespace stowplan::ordering
