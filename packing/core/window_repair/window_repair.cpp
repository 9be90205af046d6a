#include "window_repair.hpp"

#include <algorithm>
#include <vector>

#include "priority_weights.hpp"
#include "skyline_refill.hpp"
#include "windows.hpp"

namespace stowplan::packing {
namespace {

// Stacks the plain blocks around the others by each of kWeights and keeps the best, whose peak it returns.
Bytes starts(const Problem& p, const Control& control, const Stopwatch& watch, Bytes* offset, std::int64_t& effort) {
  Bytes others_top;
  const Instance in = around_others(p, offset, others_top);
  Bytes best = in.count() > 0 && in.obstacles.empty() ? kNoCeiling : peak_of(p, offset);
  const auto crowd = crowding(in);
  SkylineRefill refill(in, watch);
  Random random(control.seed);
  std::vector<Bytes> trial(in.count());
  std::int64_t dearest = 0;  // of the starts so far; no other is begun without as much left
  for (int t = 0; t < kWeightsCount && best > control.target && in.count() > 0; ++t) {
    if (t > 0 && (effort < dearest || watch.expired())) break;
    const std::int64_t spent = refill.work();
    const auto worth = worths(in, crowd, kWeights[t], random);
    const Bytes limit = best == kNoCeiling ? kNoCeiling - 1 : best - 1;
    const Bytes top = refill.run(worth.data(), reach_of(in, kWeights[t]), limit, trial.data());
    dearest = std::max(dearest, refill.work() - spent);
    effort -= refill.work() - spent;
    if (top == kNoCeiling || std::max(top, others_top) >= best) continue;
    for (std::int32_t k = 0; k < in.count(); ++k) offset[in.row[k]] = trial[k];
    watch.report(best = std::max(top, others_top));
  }
  return best;
}

}  // namespace

Bytes window_repair(const Problem& p, const Control& control, Bytes* offset) {
  const Stopwatch watch(control);
  std::int64_t effort = control.effort > 0 ? control.effort : 1'500'000 + 2 * static_cast<std::int64_t>(p.n);
  const Bytes best = starts(p, control, watch, offset, effort);
  if (best == kNoCeiling || best <= control.target || effort <= 0 || watch.expired()) return best;
  return repair_windows(p, control, watch, effort, offset);
}

}  // namespace stowplan::packing
