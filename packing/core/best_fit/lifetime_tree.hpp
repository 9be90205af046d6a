// Among the intervals still present, which of those inside [left, right) has the best rank?
//
// A k-d tree over (start, end), cut alternately at the median of each. A node knows the box around the intervals still
// present below it and their best rank, so a search leaves out what cannot be inside and what cannot be better.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "skyline.hpp"

namespace stowplan::packing {

using Rank = std::uint32_t;  // 0 is the best

class LifetimeTree {
 public:
  static constexpr Rank kNone = std::numeric_limits<Rank>::max();

  struct Interval {
    Coord start;
    Coord end;
  };

  // intervals[r] has rank r.
  explicit LifetimeTree(const std::vector<Interval>& intervals)
      : interval_(intervals), slots_(intervals.size()), slot_(intervals.size()) {
    std::iota(slots_.begin(), slots_.end(), Rank{0});
    while (leaves_ * kBucket < intervals.size()) leaves_ *= 2;
    nodes_.resize(2 * leaves_);
    build(1, 0, intervals.size(), leaves_, true);
  }

  void remove(Rank rank) {
    slots_[slot_[rank].place] = kNone;
    std::size_t node = slot_[rank].leaf;
    refresh_leaf(node);
    while (node /= 2) refresh(node);
  }

  // The best rank inside [left, right) for which admit(rank) holds, or kNone.
  template <typename Admit>
  Rank best_inside(Coord left, Coord right, Admit&& admit) const {
    Rank best = kNone;
    search(1, left, right, best, admit);
    return best;
  }

 private:
  static constexpr std::size_t kBucket = 8;

  struct Node {
    Coord least_start = std::numeric_limits<Coord>::max();
    Coord greatest_start = 0;
    Coord least_end = std::numeric_limits<Coord>::max();
    Coord greatest_end = 0;
    Rank best = kNone;  // kNone: nothing left below
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // of a leaf's slots
  };

  struct Slot {
    std::uint32_t place;
    std::uint32_t leaf;
  };

  void build(std::size_t node, std::size_t first, std::size_t last, std::size_t leaves, bool by_start) {
    if (leaves == 1) {
      nodes_[node].first = static_cast<std::uint32_t>(first);
      nodes_[node].count = static_cast<std::uint32_t>(last - first);
      for (std::size_t k = first; k < last; ++k) {
        slot_[slots_[k]] = {static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(node)};
      }
      refresh_leaf(node);
      return;
    }
    const std::size_t middle = first + (last - first) / 2;
    const auto at = [&](std::size_t k) { return slots_.begin() + static_cast<std::ptrdiff_t>(k); };
    std::nth_element(at(first), at(middle), at(last), [&](Rank a, Rank b) {
      return by_start ? interval_[a].start < interval_[b].start : interval_[a].end < interval_[b].end;
    });
    build(2 * node, first, middle, leaves / 2, !by_start);
    build(2 * node + 1, middle, last, leaves / 2, !by_start);
    refresh(node);
  }

  void refresh_leaf(std::size_t node) {
    Node fresh;
    fresh.first = nodes_[node].first;
    fresh.count = nodes_[node].count;
    for (std::size_t k = fresh.first; k < fresh.first + fresh.count; ++k) {
      if (slots_[k] == kNone) continue;
      const Interval& i = interval_[slots_[k]];
      fresh.least_start = std::min(fresh.least_start, i.start);
      fresh.greatest_start = std::max(fresh.greatest_start, i.start);
      fresh.least_end = std::min(fresh.least_end, i.end);
      fresh.greatest_end = std::max(fresh.greatest_end, i.end);
      fresh.best = std::min(fresh.best, slots_[k]);
    }
    nodes_[node] = fresh;
  }

  void refresh(std::size_t node) {
    const Node& a = nodes_[2 * node];
    const Node& b = nodes_[2 * node + 1];
    Node& n = nodes_[node];
    n.least_start = std::min(a.least_start, b.least_start);
    n.greatest_start = std::max(a.greatest_start, b.greatest_start);
    n.least_end = std::min(a.least_end, b.least_end);
    n.greatest_end = std::max(a.greatest_end, b.greatest_end);
    n.best = std::min(a.best, b.best);
  }

  template <typename Admit>
  void search(std::size_t node, Coord left, Coord right, Rank& best, Admit& admit) const {
    const Node& n = nodes_[node];
    if (n.best >= best || n.greatest_start < left || n.least_end > right) return;
    if (n.least_start >= left && n.greatest_end <= right && admit(n.best)) {
      best = n.best;
      return;
    }
    if (node >= leaves_) {
      for (std::size_t k = n.first; k < n.first + n.count; ++k) {
        const Rank r = slots_[k];
        if (r < best && interval_[r].start >= left && interval_[r].end <= right && admit(r)) best = r;
      }
      return;
    }
    const std::size_t nearer = nodes_[2 * node].best <= nodes_[2 * node + 1].best ? 2 * node : 2 * node + 1;
    search(nearer, left, right, best, admit);
    search(nearer ^ 1, left, right, best, admit);
  }

  const std::vector<Interval>& interval_;
  std::vector<Rank> slots_;  // by place, leaf by leaf; kNone once removed
  std::vector<Slot> slot_;   // by rank
  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;  // root at 1
};

}  // namespace stowplan::packing
