// The packing cores on small random problems, for sanitizer builds (make asan, make tsan).
//
// Blocks with gaps, windows, alignments and fixed offsets go through every solver, threads of `search` run side by
// side, and a watcher stops some of the runs halfway. What the least peak is, tests/packing knows.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "../../packing/core/best_fit/best_fit.hpp"
#include "../../packing/core/by_conflicts/by_conflicts.hpp"
#include "../../packing/core/exact/exact.hpp"
#include "../../packing/core/first_conflict.hpp"
#include "../../packing/core/greedy/greedy.hpp"
#include "../../packing/core/search/search.hpp"
#include "../../packing/core/window_repair/window_repair.hpp"
#include "stress.hpp"

using namespace stowplan::packing;
using stowplan::Control;

namespace {

constexpr int kProblems = 60;

struct Piece {
  Tick start, end;
  Bytes lower, upper;
};

// Columns, and the view of them that the solvers get.
struct Columns {
  std::vector<Bytes> size, alignment, fixed, lower, upper;
  std::vector<Tick> start, end, piece_start, piece_end;
  std::vector<std::int64_t> first_piece = {0};

  void add(Bytes block_size, Bytes block_alignment, const std::vector<Piece>& pieces) {
    size.push_back(block_size);
    alignment.push_back(block_alignment);
    fixed.push_back(kUnplaced);
    start.push_back(pieces.front().start);
    end.push_back(pieces.back().end);
    for (const Piece& piece : pieces) {
      piece_start.push_back(piece.start);
      piece_end.push_back(piece.end);
      lower.push_back(piece.lower);
      upper.push_back(piece.upper);
    }
    first_piece.push_back(static_cast<std::int64_t>(piece_start.size()));
  }

  Problem view() const {
    return {size.size(),        size.data(),        start.data(),     end.data(),   alignment.data(), fixed.data(),
            first_piece.data(), piece_start.data(), piece_end.data(), lower.data(), upper.data()};
  }
};

class Stress {
 public:
  explicit Stress(std::uint64_t seed) : seed_(seed), random_(seed) {}

  void run(int n, Tick ticks, bool with_exact) {
    make(n, ticks);
    const Problem problem = columns_.view();
    std::vector<std::int64_t> order(problem.n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<Bytes> offsets(problem.n);
    best_fit(problem, order.data(), offsets.data());
    check("best_fit", offsets);
    Control control;
    greedy(problem, order.data(), control, offsets.data());
    const Bytes heuristic = check("greedy", offsets);

    control.seed = seed_;
    control.effort = 40 * n;
    by_conflicts(problem, control, offsets.data());
    check("by_conflicts", offsets);
    control.progress = [](void*, Bytes, Bytes, double) {};
    best_fit(problem, order.data(), offsets.data());
    if (window_repair(problem, control, offsets.data()) != check("window_repair", offsets))
      fail("window_repair returns another peak");
    control.effort = 2;
    control.threads = 3;
    if (search(problem, control, offsets.data()) != check("search", offsets)) fail("search returns another peak");
    const Bytes searched = peak(offsets);
    control.effort = 0;
    stopped(control, [&] { search(problem, control, offsets.data()); });
    check("search, stopped", offsets);
    if (with_exact) exactly(problem, std::min(heuristic, searched), offsets);
  }

 private:
  Tick below(Tick n) { return static_cast<Tick>(random_() % static_cast<std::uint64_t>(n)); }

  void make(int n, Tick ticks) {
    columns_ = {};
    for (int i = 0; i < n; ++i) {
      const Bytes size = 1 + below(below(4) == 0 ? 40 : 8);
      const Tick start = below(ticks), end = start + 1 + below(below(3) == 0 ? ticks : 6);
      std::vector<Piece> pieces = {{start, end, 0, size}};
      if (below(6) == 0 && end - start > 3) {
        const Tick gap = start + 1 + below(end - start - 2);
        pieces = {{start, gap, 0, size}, {gap + 1, end, 0, size}};
        if (below(2) == 0) pieces.insert(pieces.begin() + 1, {gap, gap + 1, below(size), size});  // a window
      }
      columns_.add(size, below(5) == 0 ? Bytes{1} << below(4) : 1, pieces);
    }
    // Offsets that agree with each other: those of a placement.
    const Problem problem = columns_.view();
    std::vector<std::int64_t> order(problem.n);
    std::iota(order.begin(), order.end(), 0);
    std::vector<Bytes> offsets(problem.n);
    best_fit(problem, order.data(), offsets.data());
    for (int i = 0; i < n; ++i) {
      if (below(12) == 0) columns_.fixed[i] = offsets[i];
    }
  }

  void exactly(const Problem& problem, Bytes known, std::vector<Bytes>& offsets) {
    Control control;
    control.seed = seed_;
    control.effort = 20'000;
    const Bytes start = peak(offsets);
    const ExactResult least = solve_exact(problem, -1, start, control);
    const Bytes lowest = least.offsets.empty() ? start : check("exact", least.offsets);
    if (lowest > start || least.lower_bound > std::min(known, lowest)) fail("exact is wrong about the least peak");
    stopped(control, [&] {
      const ExactResult improved = solve_exact(problem, lowest, start, control);
      if (!improved.offsets.empty()) check("exact, stopped", improved.offsets);
    });
  }

  // Runs work(), which looks at the control, while another thread stops it a little later.
  template <typename Work>
  void stopped(Control& control, Work work) {
    std::atomic<bool> stop{false};
    control.goes_on = [](void* context) { return !static_cast<std::atomic<bool>*>(context)->load(); };
    control.context = &stop;
    const auto patience = std::chrono::microseconds(below(3000));
    std::thread watcher([&] {
      std::this_thread::sleep_for(patience);
      stop = true;
    });
    work();
    watcher.join();
    control.goes_on = nullptr;
  }

  Bytes peak(const std::vector<Bytes>& offsets) const {
    Bytes peak = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) peak = std::max(peak, offsets[i] + columns_.size[i]);
    return peak;
  }

  Bytes check(const char* solver, const std::vector<Bytes>& offsets) const {
    const Problem p = columns_.view();
    std::vector<Bytes> low, high;
    for (std::size_t i = 0; i < p.n; ++i) {
      if (offsets[i] < 0 || offsets[i] % p.alignment[i] != 0) fail(solver, "misplaces a block");
      if (p.fixed[i] != kUnplaced && p.fixed[i] != offsets[i]) fail(solver, "moves a fixed block");
      for (auto k = p.first_piece[i]; k < p.first_piece[i + 1]; ++k) {
        low.push_back(offsets[i] + p.piece_lower[k]);
        high.push_back(offsets[i] + p.piece_upper[k]);
      }
    }
    const auto [one, other] = first_conflict(low.size(), p.piece_start, p.piece_end, low.data(), high.data());
    if (one < low.size() && other < low.size()) fail(solver, "lets two blocks overlap");
    return peak(offsets);
  }

  [[noreturn]] void fail(const char* who, const char* what = "") const {
    stress::fail("problem " + std::to_string(seed_) + ": " + who + " " + what);
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  Columns columns_;
};

}  // namespace

int main() {
  for (int seed = 0; seed < kProblems; ++seed) Stress(seed).run(4 + seed % 20, 12 + seed % 30, true);
  for (int seed = 0; seed < 4; ++seed) Stress(kProblems + seed).run(150 + 50 * seed, 200, false);
  std::puts("packing_stress: every placement is valid");
}
