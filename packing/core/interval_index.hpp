// Which of the intervals switched on so far overlap [start, end)?
//
// All intervals are known from the beginning and sorted by start; a segment tree over that order holds the greatest end
// among those switched on. A query cuts the order where starts reach `end` and descends only where some end exceeds
// `start`: O(log k + hits) for hits that lie together, O(hits log k) at worst, O(k) memory. No conflict graph is kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "problem.hpp"

namespace stowplan::packing {

class IntervalIndex {
 public:
  // Interval i is [start[i], end[i]).
  IntervalIndex(const Tick* start, const Tick* end, std::size_t count)
      : end_(end), order_(count), starts_(count), slot_(count) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return start[a] != start[b] ? start[a] < start[b] : a < b;
    });
    for (std::size_t k = 0; k < count; ++k) {
      starts_[k] = start[order_[k]];
      slot_[order_[k]] = k;
    }
    while (leaves_ * kBucket < count) leaves_ *= 2;
    greatest_.assign(2 * leaves_, kNever);
    ends_.assign(count, kNever);
  }

  void switch_on(std::size_t i) {
    ends_[slot_[i]] = end_[i];
    for (std::size_t node = leaves_ + slot_[i] / kBucket; node >= 1 && greatest_[node] < end_[i]; node /= 2) {
      greatest_[node] = end_[i];
    }
  }

  // Calls visit(i) for every interval switched on that overlaps [start, end), by rising start.
  template <typename Visit>
  void overlapping(Tick start, Tick end, Visit&& visit) const {
    const auto cut = std::lower_bound(starts_.begin(), starts_.end(), end);
    descend(1, 0, leaves_, start, static_cast<std::size_t>(cut - starts_.begin()), visit);
  }

 private:
  static constexpr std::size_t kBucket = 8;
  static constexpr Tick kNever = std::numeric_limits<Tick>::min();

  template <typename Visit>
  void descend(std::size_t node, std::size_t first, std::size_t width, Tick start, std::size_t cut, Visit& visit) const {
    if (first * kBucket >= cut || greatest_[node] <= start) return;
    if (width == 1) {
      const std::size_t stop = std::min(cut, (first + 1) * kBucket);
      for (std::size_t k = first * kBucket; k < stop; ++k) {
        if (ends_[k] > start) visit(order_[k]);
      }
      return;
    }
    descend(2 * node, first, width / 2, start, cut, visit);
    descend(2 * node + 1, first + width / 2, width / 2, start, cut, visit);
  }

  const Tick* end_;
  std::vector<std::size_t> order_;  // slot -> interval
  std::vector<Tick> starts_;        // by slot
  std::vector<std::size_t> slot_;   // interval -> slot
  std::vector<Tick> ends_;          // by slot; kNever while switched off
  std::size_t leaves_ = 1;
  std::vector<Tick> greatest_;  // the tree, root at 1
};

}  // namespace stowplan::packing
