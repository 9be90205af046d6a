// The solvers for the order of operators on random graphs, for sanitizer builds, with the cores' invariants asserted:
// no bound is above a peak, and no two solvers prove what contradicts the other. Which orders are valid, and what the
// least peak is, tests/scheduling/test_order.py knows.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "../../scheduling/core/order/chain_contraction.hpp"
#include "../../scheduling/core/order/solver.hpp"
#include "stress.hpp"

namespace {

using namespace stowplan::ordering;

constexpr int kGraphs = 400;

class Stress {
 public:
  explicit Stress(std::uint64_t seed) : seed_(seed), random_(seed) {}

  void run(int n, double time_limit) {
    make(n);
    const Graph graph(draft_), back = graph.reversed();
    stowplan::Control control;
    control.time_limit = time_limit;
    Bytes least = std::numeric_limits<Bytes>::max(), bound = 0;
    for (const Solver solver : {Solver::kGreedy, Solver::kExact, Solver::kLocal, Solver::kAuto}) {
      const Answer answer = solve(draft_, solver, control);
      least = std::min(least, peak_of(graph, answer.order));
      bound = std::max(bound, answer.lower_bound);
    }
    if (bound > least) fail("proves a bound above an order's peak");
    if (time_limit > 1 && bound != least) fail("does not find the least peak");
    std::vector<Op> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    if (peak_of(graph, order) != peak_of(back, order)) fail("a graph reversed has another peak");
    stopped();
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

  void make(int n) {
    draft_ = {};
    draft_.extra.assign(static_cast<std::size_t>(n), 0);
    draft_.before.resize(static_cast<std::size_t>(n));
    for (int op = 1; op < n; ++op) {
      if (below(4) == 0) draft_.extra[op] = below(6);
      for (int k = below(3); k > 0; --k) {
        draft_.before[op].push_back(below(4) ? std::max(0, op - 1 - below(4)) : below(op));
      }
    }
    for (int k = n + below(n); k > 0; --k) {
      Storage storage;
      storage.size = below(4) ? below(20) : 0;
      storage.starts = {below(n)};
      if (below(6) == 0) storage.starts.push_back(below(n));
      storage.ends = storage.starts;
      for (int op = *std::max_element(storage.starts.begin(), storage.starts.end()) + 1; op < n; ++op) {
        if (below(n) >= 2) continue;
        storage.ends.push_back(op);
        for (const Op start : storage.starts) draft_.before[op].push_back(start);
      }
      if (below(10) == 0) storage.ends.push_back(below(n));  // held, without waiting
      storage.to_end = below(12) == 0;
      draft_.storages.push_back(storage);
    }
  }

  // The caller may end any search.
  void stopped() {
    int left = 1 + below(3);
    stowplan::Control control;
    control.goes_on = [](void* context) { return *static_cast<int*>(context) > 0; };
    control.progress = [](void* context, Bytes, Bytes, double) { --*static_cast<int*>(context); };
    control.context = &left;
    solve(draft_, Solver::kAuto, control);
  }

  [[noreturn]] void fail(const char* what) const {
    stress::fail("graph " + std::to_string(seed_) + ": a solver " + what);
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  Draft draft_;
};

}  // namespace

int main() {
  const double forever = stowplan::Control().time_limit;
  for (int seed = 0; seed < kGraphs; ++seed) Stress(seed).run(2 + seed % 9, forever);
  for (int seed = 0; seed < 4; ++seed) Stress(kGraphs + seed).run(12 + seed % 2, forever);
  for (int seed = 0; seed < 3; ++seed) Stress(2 * kGraphs + seed).run(60 + 30 * seed, 0.5);
  // Searches on two threads share nothing.
  std::thread other([] { Stress(3 * kGraphs).run(40, 0.3); });
  Stress(3 * kGraphs + 1).run(40, 0.3);
  other.join();
  std::puts("order_stress: no bound contradicts an order");
}
