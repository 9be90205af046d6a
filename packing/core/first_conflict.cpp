#include "first_conflict.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <vector>

namespace stowplan::packing {

std::pair<std::size_t, std::size_t> first_conflict(std::size_t count, const Tick* start, const Tick* end,
                                                   const Bytes* low, const Bytes* high) {
  std::vector<std::size_t> entering(count);
  std::iota(entering.begin(), entering.end(), std::size_t{0});
  std::vector<std::size_t> leaving = entering;
  std::sort(entering.begin(), entering.end(),
            [&](std::size_t a, std::size_t b) { return start[a] != start[b] ? start[a] < start[b] : a < b; });
  std::sort(leaving.begin(), leaving.end(), [&](std::size_t a, std::size_t b) { return end[a] < end[b]; });

  std::map<Bytes, std::size_t> live;  // by low
  auto gone = leaving.begin();
  for (const std::size_t i : entering) {
    for (; gone != leaving.end() && end[*gone] <= start[i]; ++gone) live.erase(low[*gone]);
    const auto above = live.lower_bound(low[i]);
    if (above != live.end() && above->first < high[i]) return {above->second, i};
    if (above != live.begin()) {
      const std::size_t below = std::prev(above)->second;
      if (high[below] > low[i]) return {below, i};
    }
    live.emplace_hint(above, low[i], i);
  }
  return {count, count};
}

}  // namespace stowplan::packing
