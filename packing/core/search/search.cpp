#include "search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <vector>

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

// Runs work(0) .. work(count - 1), each on a thread of its own; the first on the caller's, which alone hears Ctrl-C.
template <typename Work>
void in_parallel(int count, const Stopwatch& watch, Work work) {
  std::vector<std::future<void>> others;
  for (int t = 1; t < count; ++t) others.push_back(std::async(std::launch::async, work, t));
  work(0);
  for (const auto& other : others) {
    while (other.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout) watch.expired();
  }
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
    const auto worth = worths(in, std::vector<Bytes>(in.count(), 0), weights, random);
    peak = beam.run(options, worth.data(), limit, watch, offset.data());
  }

  const Instance& in;
  Beam beam;
  std::vector<Bytes> offset;
  Bytes peak = kNoCeiling;
};

// Window repair in place of a placement, with another seed for each thread, where that is better.
Bytes repaired(const Problem& p, const Control& control, const Stopwatch& watch, int threads, Bytes* offset) {
  std::vector<std::vector<Bytes>> offsets(threads, std::vector<Bytes>(offset, offset + p.n));
  std::vector<Bytes> peaks(threads);
  in_parallel(threads, watch, [&](int t) {
    Control mine = control;
    mine.seed = control.seed + static_cast<std::uint64_t>(t);
    mine.progress = nullptr;
    peaks[t] = window_repair(p, mine, offsets[t].data());
  });
  const auto best = std::min_element(peaks.begin(), peaks.end()) - peaks.begin();
  const Bytes known = peak_of(p, offset);
  if (peaks[best] >= known) return known;
  std::copy(offsets[best].begin(), offsets[best].end(), offset);
  watch.report(peaks[best]);
  return peaks[best];
}

}  // namespace

Bytes search(const Problem& p, const Control& control, Bytes* offset) {
  const Stopwatch watch(control);
  const int threads = std::max(1, control.threads);
  if (p.n > kBeamBlocks) return repaired(p, control, watch, threads, offset);
  Control quick = control;
  quick.effort = 4 * static_cast<std::int64_t>(p.n);
  Bytes best = repaired(p, quick, watch, 1, offset);

  Bytes others_top;
  const Instance in = around_others(p, offset, others_top);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int t = 0; t < threads; ++t) workers.push_back(std::make_unique<Worker>(in));
  const std::int64_t rounds = control.effort > 0               ? control.effort
                              : std::isinf(control.time_limit) ? kDefaultRounds
                                                               : std::numeric_limits<std::int64_t>::max();
  double width = kFirstWidth;
  const Bytes least = std::max(control.target, others_top);
  for (std::int64_t round = 0; round < rounds && best > least && !watch.expired(); ++round) {
    const double gap = static_cast<double>(best - 1 - control.target);
    const Bytes limit = best - 1 - static_cast<Bytes>(kMargins[round % 4] * gap);
    in_parallel(threads, watch, [&](int t) { workers[t]->run(width, source(control.seed, round, t), limit, watch); });
    for (const auto& worker : workers) {
      if (worker->peak == kNoCeiling || std::max(worker->peak, others_top) >= best) continue;
      best = std::max(worker->peak, others_top);
      for (std::int32_t k = 0; k < in.count(); ++k) offset[in.row[k]] = worker->offset[k];
      watch.report(best);
    }
    width = std::min(kLastWidth, width * kGrowth);
  }
  return best;
}

}  // namespace stowplan::packing
