// The free ranges of an arena beside an array of bytes: what is free, and the best fit, after changes one
// by one and after so many that the order is made from the bits again.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "free_ranges.hpp"
#include "stress.hpp"

namespace {

using stowplan::allocator::FreeRanges;
using stowplan::allocator::Range;
using stress::require;

constexpr std::uintptr_t kBegin = 4096, kUnit = 64, kUnits = 1000;
constexpr int kChanges = 300000;

Range range(std::uintptr_t first, std::uintptr_t units) {
  return {kBegin + first * kUnit, kBegin + (first + units) * kUnit};
}

struct Arena {
  FreeRanges ranges{range(0, kUnits), kUnit};
  std::vector<bool> taken = std::vector<bool>(kUnits);
  std::vector<Range> live;

  bool is_free(std::uintptr_t first, std::uintptr_t units) const {
    return std::none_of(taken.begin() + first, taken.begin() + first + units, [](bool bit) { return bit; });
  }
  void mark(Range r, bool bit) {
    std::fill(taken.begin() + (r.begin - kBegin) / kUnit, taken.begin() + (r.end - kBegin) / kUnit, bit);
  }

  // The free ranges, the lowest first.
  std::vector<Range> all() const {
    std::vector<Range> found;
    for (std::uintptr_t begin = 0; begin < kUnits; ++begin) {
      std::uintptr_t end = begin;
      while (end < kUnits && !taken[end]) ++end;
      if (end > begin) found.push_back(range(begin, end - begin));
      begin = end;
    }
    return found;
  }

  void look(std::uintptr_t bytes) {
    std::uintptr_t best = 0, room = UINTPTR_MAX;
    for (const Range free : all()) {
      const std::uintptr_t size = free.end - free.begin;
      if (size < bytes) continue;
      if (size < room) best = free.begin, room = size;
    }
    const auto any = [](Range) { return true; };
    require(ranges.best_fit(bytes, 1, any) == best, "the best fit is the lowest of the smallest free ranges");
    require(ranges.are_consistent(), "the free ranges in order are those that the bits tell of");
  }
};

}  // namespace

int main() {
  std::mt19937 random(1);
  Arena arena;
  int looks = 0;
  for (int change = 0; change < kChanges; ++change) {
    const bool again = change / 4000 % 2 == 0;  // the same few ranges over and over, or any
    const unsigned most = random() % 8 == 0 ? 60 : 6;
    const std::uintptr_t units = again ? 10 : 1 + random() % most;
    const std::uintptr_t first = again ? random() % 20 * 20 : random() % (kUnits - units);
    require(arena.ranges.contains(range(first, units)) == arena.is_free(first, units), "what is free is known");
    if (!arena.live.empty() && random() % 4 == 0) {
      std::swap(arena.live[random() % arena.live.size()], arena.live.back());
      arena.mark(arena.live.back(), false);
      arena.ranges.give(arena.live.back());
      arena.live.pop_back();
    } else if (arena.is_free(first, units)) {
      arena.live.push_back(range(first, units));
      arena.mark(arena.live.back(), true);
      arena.ranges.take(arena.live.back());
    }
    const bool busy = change / 2000 % 2 == 0;  // or else so seldom that more changes than can be noted lie in between
    if (random() % (busy ? 10 : 1500) == 0) {
      arena.look(units * kUnit);
      ++looks;
    }
  }
  std::size_t bytes = 0;
  for (const Range r : arena.live) {
    require(arena.ranges.is_taken(r), "what is taken is known");
    bytes += r.end - r.begin;
  }
  require(arena.ranges.taken() == bytes, "nothing else is taken");
  std::printf("free_ranges_stress: %d changes, %d looks for a range, all as in an array of bytes\n", kChanges, looks);
}
