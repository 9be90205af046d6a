#include "windows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "../lifetimes.hpp"
#include "priority_weights.hpp"
#include "random.hpp"
#include "skyline_refill.hpp"

namespace stowplan::packing {
namespace {

// Widths of windows, in multiples of the number of blocks alive; the next after each failure, over and over.
constexpr std::int64_t kBreadths[] = {8, 16, 4, 32, 8, 64};
constexpr std::int64_t kBreadthCount = 6;
constexpr std::int64_t kLeastAlive = 16;
// Attempts on a window. The plain weights come first, but only while a block is tried for the first few times.
constexpr int kAttempts = 16;
constexpr std::int64_t kFreshTries = 3;
constexpr double kMostNoise = 0.1;

class Repair {
 public:
  Repair(const Problem& problem, const Control& control, const Stopwatch& watch, Bytes* offset)
      : problem_(problem),
        watch_(watch),
        offset_(offset),
        random_(control.seed),
        alive_(problem.start, problem.end, problem.n),
        ends_(problem.end, problem.end + problem.n) {
    std::sort(ends_.begin(), ends_.end());
    std::vector<Tall> all;
    all.reserve(problem.n);
    for (std::size_t i = 0; i < problem.n; ++i) {
      const auto row = static_cast<std::int32_t>(i);
      alive_.add(i, row);
      all.emplace_back(top(row), row);
    }
    tops_ = std::priority_queue<Tall>(std::less<Tall>(), std::move(all));
  }

  // Until the peak is `bound`, the effort is spent or the watch has expired. Returns the peak.
  Bytes run(Bytes bound, std::int64_t effort) {
    Bytes reported = tallest().first;
    for (std::int64_t failures = 0; effort > 0 && !watch_.expired();) {
      const auto [height, row] = tallest();
      if (height < reported) watch_.report(reported = height);
      if (height <= bound) return height;
      const auto [start, end] = window(row, kBreadths[failures % kBreadthCount]);
      failures = retry(start, end, failures < kFreshTries, effort) ? 0 : failures + 1;
    }
    const Bytes peak = tallest().first;
    if (peak < reported) watch_.report(peak);
    return peak;
  }

 private:
  using Tall = std::pair<Bytes, std::int32_t>;  // top, row

  Bytes top(std::int32_t row) const { return offset_[row] + problem_.size[row]; }

  Tall tallest() {
    while (tops_.top().first != top(tops_.top().second)) tops_.pop();
    return tops_.top();
  }

  // A window around the block that holds about breadth x alive starts, or the whole block where that is longer.
  std::pair<Tick, Tick> window(std::int32_t row, std::int64_t breadth) const {
    const Tick start = problem_.start[row], end = problem_.end[row];
    const auto& starts = alive_.starts();
    const std::int64_t at = std::lower_bound(starts.begin(), starts.end(), start) - starts.begin();
    const auto dead = std::upper_bound(ends_.begin(), ends_.end(), start) - ends_.begin();
    const std::int64_t reach = std::max<std::int64_t>(at - dead, kLeastAlive) * breadth / 2;
    const auto n = static_cast<std::int64_t>(problem_.n);
    const Tick from = starts[std::max<std::int64_t>(0, at - reach)];
    const Tick to = at + reach < n ? starts[at + reach] : ends_.back();
    return {std::min(start, from), std::max(end, to)};
  }

  bool retry(Tick start, Tick end, bool fresh, std::int64_t& effort) {
    std::vector<std::int32_t> free;
    std::vector<Obstacle> obstacles;
    alive_.alive_in(start, end, [&](std::int32_t row) {
      if (problem_.start[row] >= start && problem_.end[row] <= end && is_plain(problem_, row)) {
        free.push_back(row);
      } else {
        add_obstacles(problem_, row, offset_[row], start, end, obstacles);
      }
    });
    const Instance in = make_instance(problem_, free, obstacles);
    effort -= in.count() + static_cast<std::int64_t>(obstacles.size()) + 1;
    if (free.empty()) return false;
    const auto crowd = crowding(in);
    const Bytes floor = *std::max_element(crowd.begin(), crowd.end());
    Bytes before = 0;
    for (const std::int32_t row : free) before = std::max(before, top(row));
    Bytes lowest = before;
    SkylineRefill refill(in, watch_);
    std::vector<Bytes> trial(in.count());
    std::vector<double> worth, best_worth;
    Column reach = 0, best_reach = 0;
    for (int a = 0; a < kAttempts && effort > 0 && lowest > floor && !watch_.expired(); ++a) {
      if (!best_worth.empty() && a % 2 != 0) {  // close to what was best
        worth = best_worth;
        reach = best_reach;
        const double amount = random_.unit() * random_.unit();
        for (double& w : worth) w *= std::exp(amount * random_.wobble());
      } else {
        PriorityWeights weights = kWeights[fresh && a < kWeightsCount ? a : random_.below(kWeightsCount)];
        if (!fresh || a >= kWeightsCount) {
          weights.by_crowd = kWeights[random_.below(kWeightsCount)].by_crowd;
          weights.noise = kMostNoise * random_.unit();
        }
        worth = worths(in, crowd, weights, random_);
        reach = reach_of(in, weights);
      }
      const std::int64_t spent = refill.work();
      const Bytes reached = refill.run(worth.data(), reach, lowest - 1, trial.data());
      effort -= refill.work() - spent;
      if (reached == kNoCeiling) continue;
      lowest = reached;
      best_worth = worth;
      best_reach = reach;
      for (std::int32_t k = 0; k < in.count(); ++k) offset_[in.row[k]] = trial[k];
    }
    if (lowest == before) return false;
    for (const std::int32_t row : free) tops_.emplace(top(row), row);
    return true;
  }

  const Problem& problem_;
  const Stopwatch& watch_;
  Bytes* offset_;
  Random random_;
  std::priority_queue<Tall> tops_;
  Lifetimes<std::int32_t> alive_;  // with their rows
  std::vector<Tick> ends_;
};

}  // namespace

Bytes repair_windows(const Problem& problem, const Control& control, const Stopwatch& watch, std::int64_t effort,
                     Bytes* offset) {
  return Repair(problem, control, watch, offset).run(control.target, effort);
}

}  // namespace stowplan::packing
