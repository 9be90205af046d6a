#include "by_conflicts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <vector>

#include "../instance.hpp"
#include "../obstacles.hpp"

namespace stowplan::packing {
namespace {

// What reaches the best peak gets this many times its priority, and what it conflicts with and is placed this many.
constexpr double kRaise = 1.2;
constexpr double kRaiseNear = 1.02;
constexpr std::int64_t kBetweenLooks = 1'000'000;

// A block's offset x may not be in (y + above, y + below) for a neighbour's offset y.
struct Arc {
  std::size_t block;
  Forbidden relative;
};

class Run {
 public:
  explicit Run(const Problem& p) : p_(p), arcs_(p.n), priority_(p.n), order_(p.n), offset_(p.n) {
    find_conflicts();
    for (std::size_t i = 0; i < p.n; ++i) {
      double weight = 0;
      for (std::size_t k = 0; k < arcs_[i].size(); ++k)
        if (k == 0 || arcs_[i][k].block != arcs_[i][k - 1].block)
          weight += static_cast<double>(p.size[arcs_[i][k].block]);
      priority_[i] = std::log(weight * static_cast<double>(p.size[i]));
    }
  }

  const std::vector<Bytes>& offset() const { return offset_; }

  // Places blocks and returns their peak; kNoCeiling where the time is over first. What reaches `best` ends the run,
  // and comes earlier in the next.
  Bytes place(Bytes best, const Stopwatch& watch) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      const bool fixed_a = p_.fixed[a] != kUnplaced, fixed_b = p_.fixed[b] != kUnplaced;
      return fixed_a != fixed_b ? fixed_a : priority_[a] > priority_[b];
    });
    std::fill(offset_.begin(), offset_.end(), kUnplaced);
    work_ += static_cast<std::int64_t>(p_.n) + 1;
    std::int64_t next_look = work_ + kBetweenLooks;
    Bytes peak = 0;
    for (const std::size_t i : order_) {
      offset_[i] = p_.fixed[i] != kUnplaced ? p_.fixed[i] : lowest(i);
      work_ += static_cast<std::int64_t>(arcs_[i].size());
      peak = std::max(peak, offset_[i] + p_.size[i]);
      if (peak >= best) {
        raise(i);
        break;
      }
      if (work_ > next_look) {
        next_look = work_ + kBetweenLooks;
        if (watch.expired()) return kNoCeiling;
      }
    }
    return peak;
  }

  std::int64_t work() const { return work_; }  // neighbours looked at

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

  void raise(std::size_t i) {
    priority_[i] += std::log(kRaise);
    for (std::size_t k = 0; k < arcs_[i].size(); ++k)
      if (const std::size_t j = arcs_[i][k].block; offset_[j] != kUnplaced && (k == 0 || j != arcs_[i][k - 1].block))
        priority_[j] += std::log(kRaiseNear);
  }

  Bytes lowest(std::size_t i) {
    found_.clear();
    for (const Arc& arc : arcs_[i])
      if (const Bytes y = offset_[arc.block]; y != kUnplaced)
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
  std::vector<double> priority_;  // its logarithm, which does not overflow
  std::vector<std::size_t> order_;
  std::vector<Bytes> offset_;
  std::vector<Forbidden> found_;
  ForbiddenSorter sort_;
  std::int64_t work_ = 0;
};

}  // namespace

Bytes by_conflicts(const Problem& p, const Control& control, Bytes* offset) {
  const Stopwatch watch(control);
  Run run(p);
  Bytes best = kNoCeiling;
  while (best > control.target && (control.effort == 0 || run.work() < control.effort)) {
    if (const Bytes peak = run.place(best, watch); peak < best) {
      std::copy(run.offset().begin(), run.offset().end(), offset);
      watch.report(best = peak);
    }
    if (watch.expired()) break;
  }
  return best;
}

}  // namespace stowplan::packing
