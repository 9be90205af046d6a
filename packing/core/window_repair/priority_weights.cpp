#include "priority_weights.hpp"

#include <algorithm>
#include <cmath>

namespace stowplan::packing {

std::vector<double> worths(const Instance& in, const std::vector<Bytes>& crowd, const PriorityWeights& weights,
                           Random& random) {
  Bytes most = 1;
  for (const Bytes c : crowd) most = std::max(most, c);
  std::vector<double> worth(in.count());
  for (std::int32_t k = 0; k < in.count(); ++k) {
    double log = weights.by_size * std::log(static_cast<double>(in.size[k]));
    log += weights.by_length * std::log(static_cast<double>(in.end[k] - in.start[k]));
    log += weights.by_crowd * (static_cast<double>(crowd[k]) / static_cast<double>(most) - 1);
    if (weights.noise > 0) log += weights.noise * random.wobble();
    worth[k] = std::exp(log);
  }
  return worth;
}

Column reach_of(const Instance& in, const PriorityWeights& weights) {
  double columns = 0;
  for (std::int32_t k = 0; k < in.count(); ++k) columns += in.end[k] - in.start[k];
  return static_cast<Column>(weights.reach * columns / std::max(1, in.count()));
}

}  // namespace stowplan::packing
