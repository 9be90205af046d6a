// Offsets that a block may not have, because of blocks already placed.
//
// A placed piece occupies the bytes [low, high). Our piece, at the same time, occupies [x + lower, x + upper) for an
// offset x. They collide exactly when low - upper < x < high - lower: an open interval of forbidden offsets. The union
// over all pairs of pieces is all that a packer has to know, whatever gaps and windows the blocks have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lifetimes.hpp"
#include "problem.hpp"

namespace stowplan::packing {

struct Forbidden {
  Bytes above;  // every x with above < x < below collides
  Bytes below;
};

// Sorts by `above`. Offsets are spread rather evenly, so most of the work is done by dealing them into as many buckets
// as there are intervals: linear, where comparing alone would dominate the whole packing.
class ForbiddenSorter {
 public:
  void operator()(std::vector<Forbidden>& list) {
    const std::size_t count = list.size();
    const auto by_above = [](const Forbidden& a, const Forbidden& b) { return a.above < b.above; };
    if (count < kWorthDealing) {
      std::sort(list.begin(), list.end(), by_above);
      return;
    }
    Bytes least = list.front().above;
    Bytes greatest = least;
    for (const Forbidden& f : list) {
      least = std::min(least, f.above);
      greatest = std::max(greatest, f.above);
    }
    const double range = static_cast<double>(greatest) - static_cast<double>(least);
    const double scale = static_cast<double>(count - 1) / (range + 1);
    ends_.assign(count + 1, 0);
    bucket_.resize(count);
    for (std::size_t k = 0; k < count; ++k) {
      bucket_[k] = static_cast<std::uint32_t>(static_cast<double>(list[k].above - least) * scale);
      ++ends_[bucket_[k] + 1];
    }
    for (std::size_t b = 0; b < count; ++b) ends_[b + 1] += ends_[b];
    dealt_.resize(count);
    for (std::size_t k = 0; k < count; ++k) dealt_[ends_[bucket_[k]]++] = list[k];
    list.swap(dealt_);
    std::size_t first = 0;
    for (std::size_t b = 0; b < count; ++b) {  // dealing has moved ends_[b] from the bucket's beginning to its end
      if (ends_[b] - first > 1) {
        const auto at = [&](std::size_t k) { return list.begin() + static_cast<std::ptrdiff_t>(k); };
        std::sort(at(first), at(ends_[b]), by_above);
      }
      first = ends_[b];
    }
  }

 private:
  static constexpr std::size_t kWorthDealing = 64;

  std::vector<std::uint32_t> bucket_;
  std::vector<std::size_t> ends_;
  std::vector<Forbidden> dealt_;
};

class Obstacles {
 public:
  explicit Obstacles(const Problem& problem)
      : problem_(problem),
        placed_(problem.piece_start, problem.piece_end, static_cast<std::size_t>(problem.first_piece[problem.n])) {}

  void place(std::size_t block, Bytes offset) {
    for (auto k = first(block); k < last(block); ++k) {
      placed_.add(k, {offset + problem_.piece_lower[k], offset + problem_.piece_upper[k]});
    }
  }

  // The forbidden offsets of a block, by rising `above`; valid until the next call.
  const std::vector<Forbidden>& forbidden(std::size_t block) {
    found_.clear();
    for (auto mine = first(block); mine < last(block); ++mine) {
      const Bytes lower = problem_.piece_lower[mine];
      const Bytes upper = problem_.piece_upper[mine];
      placed_.alive_in(problem_.piece_start[mine], problem_.piece_end[mine],
                       [&](const Place& at) { found_.push_back({at.low - upper, at.high - lower}); });
    }
    sort_(found_);
    return found_;
  }

 private:
  std::size_t first(std::size_t block) const { return static_cast<std::size_t>(problem_.first_piece[block]); }
  std::size_t last(std::size_t block) const { return static_cast<std::size_t>(problem_.first_piece[block + 1]); }

  struct Place {
    Bytes low, high;
  };

  const Problem& problem_;
  Lifetimes<Place> placed_;
  ForbiddenSorter sort_;
  std::vector<Forbidden> found_;
};

}  // namespace stowplan::packing
