#include "greedy.hpp"

#include <limits>
#include <vector>

#include "../obstacles.hpp"

namespace stowplan::packing {
namespace {

// Neighbours met between two looks at the clock: some milliseconds.
constexpr std::size_t kBetweenLooks = 1'000'000;

// The hole [from, to] of offsets with the least width, in which a multiple of `alignment` exists.
Bytes smallest_hole(const std::vector<Forbidden>& forbidden, Bytes alignment) {
  Bytes best = kUnplaced;
  Bytes best_width = std::numeric_limits<Bytes>::max();
  Bytes from = 0;
  for (const Forbidden& f : forbidden) {
    const Bytes x = align_up(from, alignment);
    if (x <= f.above && f.above - from < best_width) {
      best = x;
      best_width = f.above - from;
    }
    from = std::max(from, f.below);
  }
  return best != kUnplaced ? best : align_up(from, alignment);
}

}  // namespace

bool greedy(const Problem& problem, const std::int64_t* order, const Control& control, Bytes* offsets) {
  const Stopwatch watch(control);
  std::size_t met = 0;
  Obstacles obstacles(problem);
  for (std::size_t i = 0; i < problem.n; ++i) {
    if (problem.fixed[i] != kUnplaced) {
      offsets[i] = problem.fixed[i];
      obstacles.place(i, offsets[i]);
    }
  }
  for (std::size_t k = 0; k < problem.n; ++k) {
    const auto i = static_cast<std::size_t>(order[k]);
    if (problem.fixed[i] != kUnplaced) continue;
    const auto& forbidden = obstacles.forbidden(i);
    offsets[i] = smallest_hole(forbidden, problem.alignment[i]);
    obstacles.place(i, offsets[i]);
    met += forbidden.size();
    if (met >= kBetweenLooks) {
      if (watch.expired()) return false;
      met = 0;
    }
  }
  return true;
}

}  // namespace stowplan::packing
