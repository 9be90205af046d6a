#include "window_repair.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "../best_fit/best_fit.hpp"
#include "priority_weights.hpp"
#include "skyline_refill.hpp"
#include "windows.hpp"

namespace stowplan::packing {
namespace {

Bytes peak_of(const Problem& p, const Bytes* offset) {
  Bytes peak = 0;
  for (std::size_t i = 0; i < p.n; ++i) peak = std::max(peak, offset[i] + p.size[i]);
  return peak;
}

// Best fit by falling lifetime, for the blocks that are no plain rectangles.
void place_odd(const Problem& p, Bytes* offset) {
  std::vector<Tick> lifetime(p.n, 0);
  for (std::size_t i = 0; i < p.n; ++i)
    for (auto k = p.first_piece[i]; k < p.first_piece[i + 1]; ++k) lifetime[i] += p.piece_end[k] - p.piece_start[k];
  std::vector<std::int64_t> order(p.n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    if (lifetime[a] != lifetime[b]) return lifetime[a] > lifetime[b];
    return p.size[a] != p.size[b] ? p.size[a] > p.size[b] : a < b;
  });
  best_fit(p, order.data(), offset);
}

}  // namespace

Bytes window_repair(const Problem& p, const Control& control, Bytes* offset) {
  const Stopwatch watch(control);
  if (p.n == 0) return 0;
  const Bytes bound = live_peak(p);
  const auto n = static_cast<std::int64_t>(p.n);
  std::int64_t effort = control.effort > 0 ? control.effort : 1'500'000 + 2 * n;
  Bytes best = kNoCeiling;
  {
    std::vector<std::int32_t> free, odd;
    for (std::size_t i = 0; i < p.n; ++i) {
      offset[i] = std::max<Bytes>(p.fixed[i], 0);
      if (p.first_piece[i] == p.first_piece[i + 1]) continue;  // occupies nothing
      (is_plain(p, i) ? free : odd).push_back(static_cast<std::int32_t>(i));
    }
    std::vector<Obstacle> obstacles;
    if (!odd.empty()) {
      place_odd(p, offset);
      watch.report(best = peak_of(p, offset));
      for (const std::int32_t i : odd)
        add_obstacles(p, i, offset[i], std::numeric_limits<Tick>::min(), std::numeric_limits<Tick>::max(), obstacles);
    }
    Bytes fixed_top = 0;  // of all that is not stacked
    for (std::size_t i = 0; i < p.n; ++i)
      if (!is_plain(p, i)) fixed_top = std::max(fixed_top, offset[i] + p.size[i]);
    const Instance in = make_instance(p, free, obstacles);
    const auto crowd = crowding(in);
    SkylineRefill refill(in, &watch);
    Random random(control.seed);
    std::vector<Bytes> trial(in.count());
    std::int64_t dearest = 0;  // of the starts so far; no other is begun without as much left
    for (int t = 0; t < kWeightsCount && best > bound && !free.empty(); ++t) {
      if (t > 0 && (effort < dearest || watch.expired())) break;
      const std::int64_t spent = refill.work();
      const auto worth = worths(in, crowd, kWeights[t], random);
      const Bytes limit = best == kNoCeiling ? kNoCeiling - 1 : best - 1;
      const Bytes top = refill.run(worth.data(), reach_of(in, kWeights[t]), limit, trial.data());
      dearest = std::max(dearest, refill.work() - spent);
      effort -= refill.work() - spent;
      if (top == kNoCeiling || std::max(top, fixed_top) >= best) continue;
      for (std::int32_t k = 0; k < in.count(); ++k) offset[in.row[k]] = trial[k];
      watch.report(best = std::max(top, fixed_top));
    }
    if (best == kNoCeiling && !free.empty()) return kNoCeiling;
  }
  if (best <= bound || effort <= 0 || watch.expired()) return peak_of(p, offset);
  Repair repair(p, control, watch, offset);
  repair.run(bound, effort);
  return repair.peak();
}

}  // namespace stowplan::packing
