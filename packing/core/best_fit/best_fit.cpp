#include "best_fit.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "../obstacles.hpp"
#include "lifetime_tree.hpp"
#include "skyline.hpp"

namespace stowplan::packing {
namespace {

// The pieces of the blocks that stand on the skyline, by rank of their block, in ranks of ticks: lines begin and end
// nowhere else.
struct Footprints {
  Footprints(const Problem& problem, const std::vector<std::size_t>& blocks) {
    std::vector<Tick> ticks;
    first.reserve(blocks.size() + 1);
    for (const std::size_t i : blocks) {
      first.push_back(static_cast<std::uint32_t>(ticks.size() / 2));
      for (auto k = problem.first_piece[i]; k < problem.first_piece[i + 1]; ++k) {
        ticks.push_back(problem.piece_start[k]);
        ticks.push_back(problem.piece_end[k]);
      }
    }
    first.push_back(static_cast<std::uint32_t>(ticks.size() / 2));
    std::vector<Tick> distinct = ticks;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    width = static_cast<Coord>(distinct.size() - 1);
    const auto rank = [&](Tick tick) {
      return static_cast<Coord>(std::lower_bound(distinct.begin(), distinct.end(), tick) - distinct.begin());
    };
    interval.reserve(ticks.size() / 2);
    for (std::size_t k = 0; k < ticks.size(); k += 2) interval.push_back({rank(ticks[k]), rank(ticks[k + 1])});
  }

  Coord width = 0;
  std::vector<std::uint32_t> first;  // the pieces of rank r: first[r] .. first[r + 1]
  std::vector<LifetimeTree::Interval> interval;
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

  const Footprints pieces(problem, blocks);
  // A block can stand on the lowest line only if its first piece lies inside that very line: a line under the first
  // piece that is as low and further left would have been chosen before. So the tree holds first pieces only.
  std::vector<LifetimeTree::Interval> lifetimes(blocks.size());
  for (Rank r = 0; r < blocks.size(); ++r) lifetimes[r] = pieces.interval[pieces.first[r]];
  LifetimeTree waiting(lifetimes);
  Skyline skyline(pieces.width);

  for (std::size_t placed = 0; placed < blocks.size();) {
    const Line line = skyline.lowest();
    const auto level_under_all = [&](Rank r) {
      for (auto k = pieces.first[r] + 1; k < pieces.first[r + 1]; ++k) {
        const Line under = skyline.over(pieces.interval[k].start);
        if (under.height != line.height || pieces.interval[k].end > under.right) return false;
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
    const Bytes* top = problem.piece_upper + problem.first_piece[i];
    for (auto k = pieces.first[r]; k < pieces.first[r + 1]; ++k) {
      skyline.raise(pieces.interval[k].start, pieces.interval[k].end, x + *top++);
    }
    waiting.remove(r);
    ++placed;
  }
}

}  // namespace stowplan::packing
