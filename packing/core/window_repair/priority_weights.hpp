// Priority weights: how much a block's size, lifetime and crowding count when the skyline chooses which goes first.
//
//     worth = size ^ by_size * lifetime ^ by_length * exp(by_crowd (crowding / largest crowding - 1) + noise)
//
// Crowding is the largest live sum during the block's lifetime. At the fullest moments every byte lost adds to the
// peak; so blocks that live then go first, and the others fill up around them. That is worth more than any other choice
// on long problems (see window_repair.hpp). Noise, triangular, makes many different orders of the same
// weights.
//
// The exponents are small because worth is weighed against fit (see skyline_refill.hpp), a share that is mostly near 1:
// a block of twice the lifetime is worth 4 % of lost area, one whose moments are 1 % more crowded 8 or 30 %.
//
// `reach`, in mean lifetimes, is the width from which on a sliver can be filled: lifetimes are spread widely, and those
// below a sixth of the mean together need hardly more than a hundredth of all memory.
#pragma once

#include <cstdint>
#include <vector>

#include "../instance.hpp"
#include "random.hpp"

namespace stowplan::packing {

struct PriorityWeights {
  double by_size;
  double by_length;
  double by_crowd;
  double reach;
  double noise = 0;
};

// The weights tried on every problem, best first on long ones.
constexpr PriorityWeights kWeights[] = {
    {0, 0.05, 7.5, 0.16}, {0.1, 0.2, 30, 0.16}, {0, 0.05, 7.5, 0.4}, {0, 0.2, 30, 0.16}};
constexpr int kWeightsCount = 4;

// `crowd`: crowding(instance).
std::vector<double> worths(const Instance& instance, const std::vector<Bytes>& crowd, const PriorityWeights& weights,
                           Random& random);

// The weights' reach in columns.
Column reach_of(const Instance& instance, const PriorityWeights& weights);

}  // namespace stowplan::packing
