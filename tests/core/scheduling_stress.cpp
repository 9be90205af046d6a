// The schedule simulator on random small graphs, for sanitizer builds (make asan, make tsan).
//
// Random orders and ways of graphs with residents, results, held values and workspace, and drops in those without
// phases, are evaluated by one simulator that keeps what it can. Threads work on simulators of their own. Views,
// several writers and what the figures have to be, those of a new simulator: tests/scheduling/test_simulate.py.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "../../scheduling/core/simulator/simulator.hpp"
#include "stress.hpp"

using namespace stowplan::scheduling;

namespace {

constexpr int kGraphs = 2000;
constexpr int kChanges = 30;

struct Columns {
  std::vector<std::int64_t> reads_first = {0}, reads, writes_first = {0}, writes;
  std::vector<std::int64_t> phase, workspace, size, storage, held, packed;
  std::vector<double> seconds;
  std::vector<std::uint8_t> resident, kept;

  std::int64_t add_value(std::int64_t bytes) {
    const auto v = static_cast<std::int64_t>(size.size());
    size.push_back(bytes);
    storage.push_back(v);
    held.push_back(-1);
    packed.push_back(size.back() / 3);
    resident.push_back(0);
    kept.push_back(0);
    return v;
  }

  Graph view() const {
    return {static_cast<std::int64_t>(phase.size()),
            static_cast<std::int64_t>(size.size()),
            {reads_first.data(), reads.data()},
            {writes_first.data(), writes.data()},
            phase.data(),
            workspace.data(),
            seconds.data(),
            size.data(),
            storage.data(),
            held.data(),
            packed.data(),
            resident.data(),
            kept.data()};
  }
};

class Stress {
 public:
  explicit Stress(std::uint64_t seed) : seed_(seed), random_(seed) {}

  void run(int operators) {
    make(operators);
    const Graph graph = columns_.view();
    const Rates rates = {below(2) ? 4.0 : 1e9, 16.0};
    Simulator kept(graph, rates);
    std::vector<std::int64_t> order = any_order();
    std::vector<Way> way(static_cast<std::size_t>(graph.m), Way::kept);
    kept.set_order(order.data());
    for (int change = 0; change < kChanges; ++change) {
      if (below(10) == 0) {
        order = any_order();
        kept.set_order(order.data());
      }
      for (std::int64_t k = below(4); k-- > 0 && graph.m > 0;) {
        const std::int64_t v = below(graph.m);
        if (ways_[v].empty()) continue;
        way[v] = ways_[v][below(static_cast<std::int64_t>(ways_[v].size()))];
        kept.set_way(static_cast<Index>(v), way[v]);
        if (const Index uses = kept.use_count(static_cast<Index>(v)); !phases_ && uses > 0) {
          const Index use = kept.first_use(static_cast<Index>(v)) + static_cast<Index>(below(uses));
          kept.set_goes(static_cast<Index>(v), use, below(2) != 0);
        }
      }
      if (below(4) == 0) continue;
      const Score score = kept.evaluate();
      if (*std::max_element(kept.live().begin(), kept.live().end()) != score.peak) fail("a peak that no position has");
      std::vector<Index> released;
      kept.released(released);
      kept.check_invariants();
    }
  }

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }

  void make(int operators) {
    columns_ = {};
    phases_ = below(3) > 0;
    for (std::int64_t k = below(3); k-- > 0;) columns_.resident[columns_.add_value(50)] = 1;
    std::vector<std::int64_t> readable;
    for (std::size_t v = 0; v < columns_.size.size(); ++v) readable.push_back(static_cast<std::int64_t>(v));
    writer_.assign(readable.size(), -1);
    for (int i = 0; i < operators; ++i) {
      for (std::int64_t k = below(4); k-- > 0 && !readable.empty();) {
        columns_.reads.push_back(readable[below(static_cast<std::int64_t>(readable.size()))]);
      }
      columns_.reads_first.push_back(static_cast<std::int64_t>(columns_.reads.size()));
      for (std::int64_t k = below(3); k-- > 0;) {
        columns_.writes.push_back(columns_.add_value(below(20)));
        writer_.push_back(i);
        readable.push_back(columns_.writes.back());
      }
      columns_.writes_first.push_back(static_cast<std::int64_t>(columns_.writes.size()));
      columns_.phase.push_back(phases_ ? 3 * i / std::max(operators, 1) : 0);
      columns_.workspace.push_back(below(4) ? 0 : below(30));
      columns_.seconds.push_back(static_cast<double>(below(5)) / 4);
    }
    for (std::size_t v = 0; v < columns_.size.size(); ++v) {
      if (below(10) == 0) columns_.held[v] = below(operators);
      if (below(15) == 0) columns_.kept[v] = 1;
    }
    ways_.assign(columns_.size.size(), {});
    for (std::size_t v = 0; v < ways_.size(); ++v) {
      if (!columns_.resident[v] && !columns_.kept[v]) ways_[v] = {Way::kept, Way::dropped, Way::packed, Way::swapped};
    }
  }

  // Each operator after those before it that write what it reads.
  std::vector<std::int64_t> any_order() {
    const Graph graph = columns_.view();
    std::vector<std::int64_t> order;
    std::vector<std::uint8_t> done(static_cast<std::size_t>(graph.n), 0);
    while (static_cast<std::int64_t>(order.size()) < graph.n) {
      const std::int64_t i = below(graph.n);
      const auto waits = [&](auto v) { return writer_[v] >= 0 && !done[writer_[v]]; };
      const auto *from = graph.reads.index + graph.reads.first[i], *to = graph.reads.index + graph.reads.first[i + 1];
      if (done[i] || std::any_of(from, to, waits)) continue;
      done[i] = 1;
      order.push_back(i);
    }
    return order;
  }

  [[noreturn]] void fail(const char* what) const { stress::fail("graph " + std::to_string(seed_) + ": " + what); }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  Columns columns_;
  bool phases_ = true;
  std::vector<std::vector<Way>> ways_;  // that a value may have; none where it must be KEPT
  std::vector<std::int64_t> writer_;
};

}  // namespace

int main() {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([thread] {
      for (int seed = thread; seed < kGraphs; seed += 2) Stress(static_cast<std::uint64_t>(seed)).run(1 + seed % 40);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::puts("scheduling_stress: every peak is a position's");
}
