#include "best_fit.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "lifetime_tree.hpp"
#include "obstacles.hpp"
#include "skyline.hpp"

namespace stowplan::packing {
namespace {

// The ticks of the pieces that stand on the skyline, as ranks: lines begin and end nowhere else.
class Clock {
 public:
  Clock(const Problem& problem, const std::vector<std::size_t>& blocks) {
    for (const std::size_t i : blocks) {
      for (auto k = problem.first_piece[i]; k < problem.first_piece[i + 1]; ++k) {
        ticks_.push_back(problem.piece_start[k]);
        ticks_.push_back(problem.piece_end[k]);
      }
    }
    std::sort(ticks_.begin(), ticks_.end());
    ticks_.erase(std::unique(ticks_.begin(), ticks_.end()), ticks_.end());
  }

  Coord rank(Tick tick) const {
    return static_cast<Coord>(std::lower_bound(ticks_.begin(), ticks_.end(), tick) - ticks_.begin());
  }

  Coord width() const { return static_cast<Coord>(ticks_.size() - 1); }

 private:
  std::vector<Tick> ticks_;
};

// The lowest offset from `base` on that collides with nothing that hangs above.
Bytes rise_past(const std::vector<Forbidden>& forbidden, Bytes base, Bytes alignment) {
  Bytes x = align_up(base, alignment);
  for (const Forbidden& f : forbidden) {
    if (f.above < x && x < f.below) x = align_up(f.below, alignment);
  }
  return x;
}

}  // namespace

void best_fit(const Problem& problem, const std::int64_t* order, Bytes* offsets) {
  std::vector<std::size_t> blocks;  // by rank: those that stand on the skyline
  std::optional<Obstacles> hanging;
  for (std::size_t r = 0; r < problem.n; ++r) {
    const auto i = static_cast<std::size_t>(order[r]);
    if (problem.fixed[i] != kUnplaced) {
      if (!hanging) hanging.emplace(problem);
      hanging->place(i, problem.fixed[i]);
      offsets[i] = problem.fixed[i];
    } else if (problem.first_piece[i] == problem.first_piece[i + 1]) {
      offsets[i] = 0;  // never occupies a byte
    } else {
      blocks.push_back(i);
    }
  }
  if (blocks.empty()) return;

  const Clock clock(problem, blocks);
  const auto first = [&](Rank r) { return static_cast<std::size_t>(problem.first_piece[blocks[r]]); };
  const auto last = [&](Rank r) { return static_cast<std::size_t>(problem.first_piece[blocks[r] + 1]); };
  // A block can stand on the lowest line only if its first piece lies inside that very line: a line under the first
  // piece that is as low and further left would have been chosen before. So the tree holds first pieces only.
  std::vector<LifetimeTree::Interval> lifetimes(blocks.size());
  for (Rank r = 0; r < blocks.size(); ++r) {
    const std::size_t k = first(r);
    lifetimes[r] = {clock.rank(problem.piece_start[k]), clock.rank(problem.piece_end[k])};
  }
  LifetimeTree waiting(lifetimes);
  Skyline skyline(clock.width());

  for (std::size_t placed = 0; placed < blocks.size();) {
    const Line line = skyline.lowest();
    const auto level_under_all = [&](Rank r) {
      for (std::size_t k = first(r) + 1; k < last(r); ++k) {
        const Line under = skyline.over(clock.rank(problem.piece_start[k]));
        if (under.height != line.height || clock.rank(problem.piece_end[k]) > under.right) return false;
      }
      return true;
    };
    const Rank r = waiting.best_inside(line.left, line.right, level_under_all);
    if (r == LifetimeTree::kNone) {
      skyline.lift(line);
      continue;
    }
    const std::size_t i = blocks[r];
    const Bytes alignment = problem.alignment[i];
    const Bytes x =
        hanging ? rise_past(hanging->forbidden(i), line.height, alignment) : align_up(line.height, alignment);
    offsets[i] = x;
    for (std::size_t k = first(r); k < last(r); ++k) {
      const Bytes top = x + problem.piece_upper[k];
      skyline.raise(clock.rank(problem.piece_start[k]), clock.rank(problem.piece_end[k]), top);
    }
    waiting.remove(r);
    ++placed;
  }
}

}  // namespace stowplan::packing
