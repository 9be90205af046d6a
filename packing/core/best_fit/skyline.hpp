// The skyline of the best-fit heuristic: lines over compressed time, and a heap that knows the lowest.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "../problem.hpp"

namespace stowplan::packing {

using Coord = std::uint32_t;  // rank of a tick among all ticks at which a piece starts or ends

// A set of integers below `limit` with predecessor and successor: a tree of 64-bit words, four levels for 16 million.
class CoordSet {
 public:
  explicit CoordSet(std::size_t limit) {
    do {
      limit = (limit + 63) / 64;
      levels_.emplace_back(limit, 0);
    } while (limit > 1);
  }

  void insert(std::size_t x) {
    for (auto& level : levels_) {
      level[x / 64] |= bit(x);
      x /= 64;
    }
  }

  void erase(std::size_t x) {
    for (auto& level : levels_) {
      level[x / 64] &= ~bit(x);
      if (level[x / 64] != 0) return;
      x /= 64;
    }
  }

  bool contains(std::size_t x) const { return (levels_[0][x / 64] & bit(x)) != 0; }

  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  // The greatest member <= x.
  std::size_t at_or_before(std::size_t x) const {
    for (std::size_t h = 0; h < levels_.size(); ++h) {
      const std::uint64_t below = levels_[h][x / 64] & (~std::uint64_t{0} >> (63 - x % 64));
      if (below != 0) {
        std::size_t y = x / 64 * 64 + highest(below);
        while (h-- > 0) y = y * 64 + highest(levels_[h][y]);
        return y;
      }
      if (x / 64 == 0) return kNone;
      x = x / 64 - 1;
    }
    return kNone;
  }

  // The least member > x.
  std::size_t after(std::size_t x) const {
    for (std::size_t h = 0; h < levels_.size(); ++h) {
      ++x;
      if (x / 64 >= levels_[h].size()) return kNone;
      const std::uint64_t above = levels_[h][x / 64] & (~std::uint64_t{0} << (x % 64));
      if (above != 0) {
        std::size_t y = x / 64 * 64 + lowest(above);
        while (h-- > 0) y = y * 64 + lowest(levels_[h][y]);
        return y;
      }
      x /= 64;
    }
    return kNone;
  }

 private:
  static std::uint64_t bit(std::size_t x) { return std::uint64_t{1} << (x % 64); }
  static std::size_t highest(std::uint64_t word) { return 63 - static_cast<std::size_t>(__builtin_clzll(word)); }
  static std::size_t lowest(std::uint64_t word) { return static_cast<std::size_t>(__builtin_ctzll(word)); }

  std::vector<std::vector<std::uint64_t>> levels_;
};

struct Line {
  Coord left;
  Coord right;  // exclusive
  Bytes height;
};

class Skyline {
 public:
  // One line of height 0 over [0, width); width >= 1.
  explicit Skyline(Coord width) : width_(width), starts_(width), height_(width, 0) {
    starts_.insert(0);
    heap_.emplace(0, 0);
  }

  // The lowest line, the leftmost of equals.
  Line lowest() {
    for (;;) {
      const auto [height, left] = heap_.top();
      if (starts_.contains(left) && height_[left] == height) return {left, right_of(left), height};
      heap_.pop();  // raised or merged since
    }
  }

  // The line over coordinate x.
  Line over(Coord x) const {
    const auto left = static_cast<Coord>(starts_.at_or_before(x));
    return {left, right_of(left), height_[left]};
  }

  // Raises [left, right), which lies inside one line, to a greater height.
  void raise(Coord left, Coord right, Bytes height) {
    const Line line = over(left);
    if (right < line.right) add(right, line.height);
    add(left, height);
    join(left);
    if (right < width_) join(right);
#ifdef STOWPLAN_DEBUG
    assert(valid());
#endif
  }

  // The invariant: lines cover the whole width, and neighbours differ in height.
  bool valid() const {
    if (!starts_.contains(0)) return false;
    for (Line line = over(0); line.right < width_;) {
      const Line next = over(line.right);
      if (next.left != line.right || next.height == line.height) return false;
      line = next;
    }
    return true;
  }

  // Lifts a line to its lower neighbour and merges; it must have one.
  void lift(const Line& line) {
    Bytes height = std::numeric_limits<Bytes>::max();
    if (line.left > 0) height = over(line.left - 1).height;
    if (line.right < width_ && height_[line.right] < height) height = height_[line.right];
    raise(line.left, line.right, height);
  }

 private:
  Coord right_of(Coord left) const {
    const std::size_t next = starts_.after(left);
    return next == CoordSet::kNone ? width_ : static_cast<Coord>(next);
  }

  void add(Coord left, Bytes height) {
    starts_.insert(left);
    height_[left] = height;
    heap_.emplace(height, left);
  }

  // Merges the line that starts here into its left neighbour if their heights agree.
  void join(Coord left) {
    if (left == 0 || over(left - 1).height != height_[left]) return;
    starts_.erase(left);
  }

  Coord width_;
  CoordSet starts_;
  std::vector<Bytes> height_;  // by the start of the line
  std::priority_queue<std::pair<Bytes, Coord>, std::vector<std::pair<Bytes, Coord>>, std::greater<>> heap_;
};

}  // namespace stowplan::packing
