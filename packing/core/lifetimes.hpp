// Which of the intervals present so far meet [start, end), and what is known of them? Of pieces, where they lie.
//
// All intervals are known from the beginning and sorted by start; a segment tree over that order holds the greatest end
// among those present. A query cuts the order where starts reach `end` and descends only where some end
// exceeds `start`: O(log k + hits) for hits that lie together, O(hits log k) at worst. O(k) memory; there is no
// conflict graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "problem.hpp"

namespace stowplan::packing {

template <typename Known>
class Lifetimes {
 public:
  Lifetimes(const Tick* start, const Tick* end, std::size_t count) : end_(end), starts_(count), slot_of_(count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return start[a] != start[b] ? start[a] < start[b] : a < b; });
    for (std::size_t k = 0; k < count; ++k) {
      starts_[k] = start[order[k]];
      slot_of_[order[k]] = k;
    }
    while (leaves_ * kBucket < count) leaves_ *= 2;
    greatest_.assign(2 * leaves_, kNever);
    slots_.assign(count, Slot{kNever, Known{}});
  }

  // Interval i is present from now on.
  void add(std::size_t i, Known known) {
    const std::size_t k = slot_of_[i];
    slots_[k] = {end_[i], known};
    for (std::size_t node = leaves_ + k / kBucket; node >= 1 && greatest_[node] < end_[i]; node /= 2) {
      greatest_[node] = end_[i];
    }
  }

  // The starts of all, rising.
  const std::vector<Tick>& starts() const { return starts_; }

  // Calls visit(known) for every one present that meets [start, end), by rising start.
  template <typename Visit>
  void alive_in(Tick start, Tick end, Visit&& visit) const {
    const auto cut = std::lower_bound(starts_.begin(), starts_.end(), end);
    descend(1, 0, leaves_, start, static_cast<std::size_t>(cut - starts_.begin()), visit);
  }

 private:
  static constexpr std::size_t kBucket = 8;
  static constexpr Tick kNever = std::numeric_limits<Tick>::min();

  struct Slot {
    Tick end;  // kNever while it is absent
    Known known;
  };

  template <typename Visit>
  void descend(std::size_t node, std::size_t first, std::size_t width, Tick start, std::size_t cut,
               Visit& visit) const {
    if (first * kBucket >= cut || greatest_[node] <= start) return;
    if (width == 1) {
      const std::size_t stop = std::min(cut, (first + 1) * kBucket);
      for (std::size_t k = first * kBucket; k < stop; ++k) {
        if (slots_[k].end > start) visit(slots_[k].known);
      }
      return;
    }
    descend(2 * node, first, width / 2, start, cut, visit);
    descend(2 * node + 1, first + width / 2, width / 2, start, cut, visit);
  }

  const Tick* end_;
  std::vector<Tick> starts_;          // by slot, rising
  std::vector<std::size_t> slot_of_;  // interval -> slot
  std::vector<Slot> slots_;
  std::size_t leaves_ = 1;
  std::vector<Tick> greatest_;  // the tree, root at 1
};

}  // namespace stowplan::packing
