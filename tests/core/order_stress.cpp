// The solvers for the order of operators on random graphs, with the cores' invariants asserted: every order is valid
// and has the peak that it is said to have, no bound is above the least peak, and what is proved is the least peak
// over all orders.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "../../scheduling/core/order/contract.hpp"
#include "../../scheduling/core/order/solver.hpp"
#include "stress.hpp"

namespace {

using namespace stowplan::ordering;

constexpr int kGraphs = 400;
constexpr int kMostTried = 13;  // operators up to which all orders are tried

class Stress {
 public:
  explicit Stress(std::uint64_t seed) : seed_(seed), random_(seed) {}

  void run(int n, double time_limit) {
    make(n);
    const Bytes least = n <= kMostTried ? try_all() : -1;
    Control control;
    control.time_limit = time_limit;
    for (const Solver solver : {Solver::kGreedy, Solver::kExact, Solver::kLocal, Solver::kAuto}) {
      const Answer answer = solve(draft_, solver, control);
      const Bytes peak = check(answer.order);
      if (answer.lower_bound > peak) fail("proves a bound above its own order's peak");
      if (least < 0) continue;
      if (answer.lower_bound > least) fail("proves a bound above the least peak");
      const bool finishes = solver == Solver::kExact || solver == Solver::kAuto;
      if (finishes && (peak != least || answer.lower_bound != least)) fail("does not find the least peak");
    }
    const Graph graph(draft_), back = graph.reversed();
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

  // The definition: bytes alive when `begun` have begun and `done` are done, a bit for each operator.
  Bytes live(const std::vector<char>& begun, const std::vector<char>& done) const {
    Bytes bytes = 0;
    for (const Storage& s : draft_.storages) {
      const bool is_begun = std::any_of(s.starts.begin(), s.starts.end(), [&](Op op) { return begun[op] != 0; });
      const bool is_over = std::all_of(s.ends.begin(), s.ends.end(), [&](Op op) { return done[op] != 0; });
      if (is_begun && (s.to_end || !is_over)) bytes += s.size;
    }
    return bytes;
  }

  Bytes step(std::vector<char> done, Op op) const {
    std::vector<char> begun = done;
    begun[op] = 1;
    return live(begun, done) + draft_.extra[op];
  }

  Bytes check(const std::vector<Op>& order) const {
    std::vector<char> done(draft_.extra.size(), 0);
    if (order.size() != done.size()) fail("loses operators");
    Bytes peak = 0;
    for (const Op op : order) {
      if (done[op]) fail("runs an operator twice");
      for (const Op before : draft_.before[op]) {
        if (!done[before]) fail("breaks a dependency");
      }
      peak = std::max(peak, step(done, op));
      done[op] = 1;
    }
    return peak;
  }

  // The least peak, from the last set to the first: a set's is the least over what may run next.
  Bytes try_all() const {
    const auto n = static_cast<int>(draft_.extra.size());
    std::vector<Bytes> least(std::size_t{1} << n, 0);
    for (int set = (1 << n) - 2; set >= 0; --set) {
      std::vector<char> done(static_cast<std::size_t>(n));
      for (int op = 0; op < n; ++op) done[op] = set >> op & 1;
      Bytes best = -1;
      for (int op = 0; op < n; ++op) {
        const auto& before = draft_.before[op];
        if (done[op] || !std::all_of(before.begin(), before.end(), [&](Op o) { return done[o] != 0; })) continue;
        const Bytes peak = std::max(step(done, op), least[static_cast<std::size_t>(set | 1 << op)]);
        if (best < 0 || peak < best) best = peak;
      }
      least[static_cast<std::size_t>(set)] = std::max<Bytes>(best, 0);
    }
    return least[0];
  }

  // The caller may end any search, and gets a valid order.
  void stopped() {
    int left = 1 + below(3);
    Control control;
    control.heard = [](void* context, Bytes, Bytes) { return --*static_cast<int*>(context) > 0; };
    control.context = &left;
    check(solve(draft_, Solver::kAuto, control).order);
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
  const double forever = Control().time_limit;
  for (int seed = 0; seed < kGraphs; ++seed) Stress(seed).run(2 + seed % 9, forever);
  for (int seed = 0; seed < 4; ++seed) Stress(kGraphs + seed).run(12 + seed % 2, forever);
  for (int seed = 0; seed < 3; ++seed) Stress(2 * kGraphs + seed).run(60 + 30 * seed, 0.5);
  // Searches on two threads share nothing.
  std::thread other([] { Stress(3 * kGraphs).run(40, 0.3); });
  Stress(3 * kGraphs + 1).run(40, 0.3);
  other.join();
  std::puts("order_stress: every order is valid");
}
