// Offsets that a block may not have, because of blocks already placed.
//
// A placed piece occupies the bytes [low, high). Our piece, at the same time, occupies [x + lower, x + upper) for an
// offset x. They collide exactly when low - upper < x < high - lower: an open interval of forbidden offsets. The union
// over all pairs of pieces is all that a packer has to know, whatever gaps and windows the blocks have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "interval_index.hpp"
#include "problem.hpp"

namespace stowplan::packing {

struct Forbidden {
  Bytes above;  // every x with above < x < below collides
  Bytes below;
};

class Obstacles {
 public:
  explicit Obstacles(const Problem& problem)
      : problem_(problem),
        index_(problem.piece_start, problem.piece_end, static_cast<std::size_t>(problem.first_piece[problem.n])),
        base_(static_cast<std::size_t>(problem.first_piece[problem.n])) {}

  void place(std::size_t block, Bytes offset) {
    for (auto k = first(block); k < last(block); ++k) {
      base_[k] = offset;
      index_.switch_on(k);
    }
  }

  // The forbidden offsets of a block, by rising `above`; valid until the next call.
  const std::vector<Forbidden>& forbidden(std::size_t block) {
    found_.clear();
    for (auto mine = first(block); mine < last(block); ++mine) {
      const Bytes lower = problem_.piece_lower[mine];
      const Bytes upper = problem_.piece_upper[mine];
      index_.overlapping(problem_.piece_start[mine], problem_.piece_end[mine], [&](std::size_t theirs) {
        found_.push_back({base_[theirs] + problem_.piece_lower[theirs] - upper,
                          base_[theirs] + problem_.piece_upper[theirs] - lower});
      });
    }
    std::sort(found_.begin(), found_.end(), [](const Forbidden& a, const Forbidden& b) { return a.above < b.above; });
    return found_;
  }

 private:
  std::size_t first(std::size_t block) const { return static_cast<std::size_t>(problem_.first_piece[block]); }
  std::size_t last(std::size_t block) const { return static_cast<std::size_t>(problem_.first_piece[block + 1]); }

  const Problem& problem_;
  IntervalIndex index_;
  std::vector<Bytes> base_;  // by piece: the offset of its block
  std::vector<Forbidden> found_;
};

}  // namespace stowplan::packing
