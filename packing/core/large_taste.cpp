#include "large_taste.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stowplan::packing {

std::vector<double> taste_keys(const Instance& in, const std::vector<Bytes>& crowd, const Taste& taste,
                               Random& random) {
  Bytes most = 1;
  for (const Bytes c : crowd) most = std::max(most, c);
  std::vector<double> key(in.count());
  for (std::int32_t k = 0; k < in.count(); ++k) {
    key[k] = std::log(static_cast<double>(in.size[k]));
    key[k] += taste.by_length * std::log(static_cast<double>(in.end[k] - in.start[k]));
    key[k] += taste.by_crowd * (static_cast<double>(crowd[k]) / static_cast<double>(most));
    if (taste.noise > 0) key[k] += taste.noise * random.wobble();
  }
  return key;
}

void rank_by(const std::vector<double>& key, std::vector<std::int32_t>& rank) {
  std::vector<std::int32_t> order(key.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return key[a] != key[b] ? key[a] > key[b] : a < b; });
  rank.resize(key.size());
  for (std::size_t k = 0; k < order.size(); ++k) rank[order[k]] = static_cast<std::int32_t>(k);
}

}  // namespace stowplan::packing
