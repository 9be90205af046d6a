#include "by_conflicts.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "../instance.hpp"
#include "../obstacles.hpp"

namespace stowplan::packing {
namespace {

// What sticks out is above this share of a run's peak, and gets this many times its priority.
constexpr double kHigh = 0.95;
constexpr double kRaise = 1.1;
constexpr std::int64_t kEffort = 25'000'000;  // about a second
constexpr std::int64_t kBetweenLooks = 1'000'000;

// A block's offset x may not be in (y + above, y + below) for a neighbour's offset y.
struct Arc {
  std::size_t block;
  Forbidden relative;
};

class Run {
 public:
  explicit Run(const Problem& p) : p_(p), arcs_(p.n), priority_(p.n), order_(p.n) {
    find_conflicts();
    for (std::size_t i = 0; i < p.n; ++i) {
      double weight = 0;
      for (std::size_t k = 0; k < arcs_[i].size(); ++k)
        if (k == 0 || arcs_[i][k].block != arcs_[i][k - 1].block)
          weight += static_cast<double>(p.size[arcs_[i][k].block]);
      priority_[i] = weight * static_cast<double>(p.size[i]);
    }
  }

  // Places all blocks and returns the peak; kNoCeiling where the time is over first.
  Bytes place(const Stopwatch& watch, std::vector<Bytes>& offset) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      const bool fixed_a = p_.fixed[a] != kUnplaced, fixed_b = p_.fixed[b] != kUnplaced;
      return fixed_a != fixed_b ? fixed_a : priority_[a] > priority_[b];
    });
    std::fill(offset.begin(), offset.end(), kUnplaced);
    Bytes peak = 0;
    for (const std::size_t i : order_) {
      offset[i] = p_.fixed[i] != kUnplaced ? p_.fixed[i] : lowest(i, offset);
      peak = std::max(peak, offset[i] + p_.size[i]);
      since_look_ += static_cast<std::int64_t>(arcs_[i].size());
      if (since_look_ > kBetweenLooks) {
        since_look_ = 0;
        if (watch.expired()) return kNoCeiling;
      }
    }
    return peak;
  }

  void raise_what_sticks_out(const std::vector<Bytes>& offset, Bytes peak) {
    const double high = kHigh * static_cast<double>(peak);
    for (std::size_t i = 0; i < p_.n; ++i)
      if (static_cast<double>(offset[i] + p_.size[i]) > high) priority_[i] *= kRaise;
  }

  std::int64_t work() const {
    std::int64_t sum = 1;
    for (const auto& row : arcs_) sum += static_cast<std::int64_t>(row.size());
    return sum;
  }

 private:
  // Pairs of pieces that overlap in time, in a sweep over their starts.
  void find_conflicts() {
    const auto count = static_cast<std::size_t>(p_.first_piece[p_.n]);
    std::vector<std::size_t> of(count), by_start(count), alive;
    for (std::size_t i = 0; i < p_.n; ++i)
      for (auto k = p_.first_piece[i]; k < p_.first_piece[i + 1]; ++k) of[static_cast<std::size_t>(k)] = i;
    std::iota(by_start.begin(), by_start.end(), std::size_t{0});
    std::stable_sort(by_start.begin(), by_start.end(),
                     [&](std::size_t a, std::size_t b) { return p_.piece_start[a] < p_.piece_start[b]; });
    for (const std::size_t mine : by_start) {
      for (std::size_t k = 0; k < alive.size();) {
        const std::size_t theirs = alive[k];
        if (p_.piece_end[theirs] <= p_.piece_start[mine]) {
          alive[k] = alive.back();
          alive.pop_back();
          continue;
        }
        const Bytes above = p_.piece_lower[theirs] - p_.piece_upper[mine];
        const Bytes below = p_.piece_upper[theirs] - p_.piece_lower[mine];
        arcs_[of[mine]].push_back({of[theirs], {above, below}});
        arcs_[of[theirs]].push_back({of[mine], {-below, -above}});
        ++k;
      }
      alive.push_back(mine);
    }
    const auto key = [](const Arc& a) { return std::make_tuple(a.block, a.relative.above, a.relative.below); };
    for (auto& row : arcs_) {
      std::sort(row.begin(), row.end(), [&](const Arc& a, const Arc& b) { return key(a) < key(b); });
      const auto same = [&](const Arc& a, const Arc& b) { return key(a) == key(b); };
      row.erase(std::unique(row.begin(), row.end(), same), row.end());
      row.shrink_to_fit();
    }
  }

  Bytes lowest(std::size_t i, const std::vector<Bytes>& offset) {
    found_.clear();
    for (const Arc& arc : arcs_[i])
      if (const Bytes y = offset[arc.block]; y != kUnplaced)
        found_.push_back({y + arc.relative.above, y + arc.relative.below});
    sort_(found_);
    Bytes x = 0;
    for (const Forbidden& f : found_) {
      if (x <= f.above) break;
      if (x < f.below) x = align_up(f.below, p_.alignment[i]);
    }
    return x;
  }

  const Problem& p_;
  std::vector<std::vector<Arc>> arcs_;
  std::vector<double> priority_;
  std::vector<std::size_t> order_;
  std::vector<Forbidden> found_;
  ForbiddenSorter sort_;
  std::int64_t since_look_ = 0;
};

}  // namespace

Bytes by_conflicts(const Problem& p, const Control& control, Bytes* offset) {
  const Stopwatch watch(control);
  Run run(p);
  std::vector<Bytes> trial(p.n);
  Bytes best = kNoCeiling;
  for (std::int64_t left = control.effort > 0 ? control.effort : kEffort; left > 0 && best > control.target;
       left -= run.work()) {
    const Bytes peak = run.place(watch, trial);
    if (peak == kNoCeiling) break;
    if (peak < best) {
      std::copy(trial.begin(), trial.end(), offset);
      watch.report(best = peak);
    }
    if (watch.expired()) break;
    run.raise_what_sticks_out(trial, peak);
  }
  return best;
}

}  // namespace stowplan::packing
