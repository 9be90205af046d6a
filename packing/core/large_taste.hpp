// Which block goes first: a family of orders for the skyline.
//
//     key = log(size) + by_length log(lifetime) + by_crowd crowding / (largest crowding) + noise, falling
//
// by_length 1 is the area, 5 and more nearly the paper's longest lifetime. Crowding is the largest live sum during the
// block's lifetime: with by_crowd in the hundreds, blocks that live at the fullest moments go first, where every byte
// lost adds to the peak, and the others fill up around them. That is worth more than any other choice on long problems
// (see large.hpp). Noise, triangular, makes many different orders of one taste.
#pragma once

#include <cstdint>
#include <vector>

#include "search_instance.hpp"
#include "search_random.hpp"

namespace stowplan::packing {

struct Taste {
  double by_length;
  double by_crowd;
  double noise = 0;
};

// The tastes tried on every problem, best first on long ones.
constexpr Taste kTastes[] = {{5, 512}, {1, 0}, {3, 256}, {10, 700}, {0.5, 0}, {2, 512}, {1, 16}, {0, 0}};
constexpr int kTasteCount = 8;

// `crowd`: crowding(instance).
std::vector<double> taste_keys(const Instance& instance, const std::vector<Bytes>& crowd, const Taste& taste,
                               Random& random);

// rank[k] of free block k by falling key; ties by k.
void rank_by(const std::vector<double>& key, std::vector<std::int32_t>& rank);

}  // namespace stowplan::packing
