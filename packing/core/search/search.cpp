#include "search.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "../best_fit/best_fit.hpp"
#include "../greedy/greedy.hpp"
#include "../window_repair/priority_weights.hpp"
#include "../window_repair/window_repair.hpp"
#include "beam.hpp"

namespace stowplan::packing {
namespace {

constexpr std::int64_t kDefaultRounds = 24;
constexpr double kFirstWidth = 8, kLastWidth = 4096, kGrowth = 1.15;
constexpr double kFeet[] = {0.8, 0.85, 0.9, 0.95, 0.97};
constexpr int kPowers[] = {2, 3, 4, 6};
constexpr std::int32_t kBranches[] = {6, 20, 50};
// How much of the gap to the bound a round must close, by round modulo 4.
constexpr double kMargins[] = {0, 0.125, 0.25, 0.375};

Bytes peak_of(const Problem& p, const Bytes* offset) {
  Bytes peak = 0;
  for (std::size_t i = 0; i < p.n; ++i) peak = std::max(peak, offset[i] + p.size[i]);
  return peak;
}

// Runs work(0) .. work(count - 1), each on a thread of its own; the first on the caller's.
template <typename Work>
void in_parallel(int count, Work work) {
  std::vector<std::thread> threads;
  for (int t = 1; t < count; ++t) threads.emplace_back(work, t);
  work(0);
  for (auto& thread : threads) thread.join();
}

Random source(std::uint64_t seed, std::int64_t round, int thread) {
  Random random(seed);
  const std::uint64_t a = random.next() + static_cast<std::uint64_t>(round);
  return Random(Random(a).next() + static_cast<std::uint64_t>(thread));
}

struct Worker {
  explicit Worker(const Instance& instance) : in(instance), beam(instance), offset(instance.count()) {}

  void run(double width, Random random, Bytes limit, const Stopwatch& watch) {
    BeamOptions options;
    options.width = static_cast<std::int32_t>(width);
    options.foot = kFeet[random.below(5)];
    options.power = kPowers[random.below(4)];
    options.branch = kBranches[random.below(3)];
    const PriorityWeights weights{1, 1.2 * random.unit(), 0, 0, 0.3};
    rank_by(worths(in, std::vector<Bytes>(in.count(), 0), weights, random), rank);
    peak = beam.run(options, rank.data(), limit, watch, offset.data());
  }

  const Instance& in;
  Beam beam;
  std::vector<std::int32_t> rank;
  std::vector<Bytes> offset;
  Bytes peak = kNoCeiling;
};

Bytes start(const Problem& p, const Control& control, Bytes* offset) {
  Control quick = control;
  quick.effort = 4 * static_cast<std::int64_t>(p.n);
  quick.progress = nullptr;
  Bytes best = window_repair(p, quick, offset);
  std::vector<std::int64_t> order(p.n);
  std::iota(order.begin(), order.end(), 0);
  std::vector<Bytes> trial(p.n);
  auto consider = [&] {
    const Bytes peak = peak_of(p, trial.data());
    if (peak >= best) return;
    best = peak;
    std::copy(trial.begin(), trial.end(), offset);
  };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p.size[a] > p.size[b]; });
  if (greedy(p, order.data(), control, trial.data())) consider();
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return p.end[a] - p.start[a] > p.end[b] - p.start[b]; });
  best_fit(p, order.data(), trial.data());
  consider();
  return best;
}

Bytes repair_in_parallel(const Problem& p, const Control& control, const Stopwatch& watch, Bytes* offset) {
  const int threads = std::max(1, control.threads);
  std::vector<std::vector<Bytes>> offsets(threads, std::vector<Bytes>(p.n));
  std::vector<Bytes> peaks(threads);
  in_parallel(threads, [&](int t) {
    Control mine = control;
    mine.seed = control.seed + static_cast<std::uint64_t>(t);
    mine.progress = nullptr;
    peaks[t] = window_repair(p, mine, offsets[t].data());
  });
  const auto best = std::min_element(peaks.begin(), peaks.end()) - peaks.begin();
  std::copy(offsets[best].begin(), offsets[best].end(), offset);
  watch.report(peaks[best]);
  return peaks[best];
}

}  // namespace

Bytes search(const Problem& p, const Control& control, Bytes* offset) {
  const Stopwatch watch(control);
  if (p.n == 0) return 0;
  if (p.n > kBeamBlocks) return repair_in_parallel(p, control, watch, offset);
  const Bytes bound = live_peak(p);
  Bytes best = start(p, control, offset);
  watch.report(best);
  if (best <= bound) return best;

  std::vector<std::int32_t> free;
  std::vector<Obstacle> obstacles;
  Bytes fixed_top = 0;
  for (std::size_t i = 0; i < p.n; ++i) {
    if (is_plain(p, i)) {
      free.push_back(static_cast<std::int32_t>(i));
    } else {
      add_obstacles(p, i, offset[i], std::numeric_limits<Tick>::min(), std::numeric_limits<Tick>::max(), obstacles);
      fixed_top = std::max(fixed_top, offset[i] + p.size[i]);
    }
  }
  const Instance in = make_instance(p, free, obstacles);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int t = 0; t < std::max(1, control.threads); ++t) workers.push_back(std::make_unique<Worker>(in));
  const std::int64_t rounds = control.effort > 0               ? control.effort
                              : std::isinf(control.time_limit) ? kDefaultRounds
                                                               : std::numeric_limits<std::int64_t>::max();
  double width = kFirstWidth;
  const Bytes least = std::max(bound, fixed_top);
  for (std::int64_t round = 0; round < rounds && best > least && !watch.expired(); ++round) {
    const Bytes limit = best - 1 - static_cast<Bytes>(kMargins[round % 4] * static_cast<double>(best - 1 - bound));
    in_parallel(static_cast<int>(workers.size()),
                [&](int t) { workers[t]->run(width, source(control.seed, round, t), limit, watch); });
    for (const auto& worker : workers) {
      if (worker->peak == kNoCeiling || std::max(worker->peak, fixed_top) >= best) continue;
      best = std::max(worker->peak, fixed_top);
      for (std::int32_t k = 0; k < in.count(); ++k) offset[in.row[k]] = worker->offset[k];
      watch.report(best);
    }
    width = std::min(kLastWidth, width * kGrowth);
  }
  return best;
}

}  // namespace stowplan::packing
