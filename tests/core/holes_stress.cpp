// The free ranges of a heap beside an array of units: states, the best fit, what is free in a range, uses that end.
#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "holes.hpp"
#include "stress.hpp"

namespace {

using stowplan::allocator::Bytes;
using stowplan::allocator::Holes;
using stress::require;
using State = Holes::State;

constexpr Bytes kUnits = 1000, kBorder = 500;
constexpr int kChanges = 200000;
constexpr State kTaken = 99, kStates = 5;

struct Range {
  Bytes begin, end;
};

struct Heap {
  Holes holes;
  std::vector<State> state = std::vector<State>(kUnits, kTaken);  // by unit
  std::vector<Range> live{{0, kUnits}};                           // each with a promise

  Heap() {
    holes.promise(1);
    holes.add_border(kBorder);
  }

  void give(std::size_t which, State as, std::uint64_t number) {
    std::swap(live[which], live.back());
    const Range range = live.back();
    live.pop_back();
    std::fill(state.begin() + range.begin, state.begin() + range.end, as);
    holes.put({range.begin, range.end, as, number});
  }
  void take(Range range) {
    live.push_back(range);
    std::fill(state.begin() + range.begin, state.begin() + range.end, kTaken);
  }

  // Whole holes of a state, the lowest first: neighbours are one but at the border.
  std::vector<Range> all(State of) const {
    std::vector<Range> found;
    for (Bytes begin = 0, end = 0; begin < kUnits; begin = end) {
      end = begin + 1;
      while (end < kUnits && end != kBorder && state[end] == state[begin]) ++end;
      if (state[begin] == of) found.push_back({begin, end});
    }
    return found;
  }

  void check(State of, Bytes size) const {
    const std::vector<Range> ranges = all(of);
    Range best{0, 2 * kUnits};
    std::size_t fitting = 0;
    for (const Range range : ranges) {
      if (range.end - range.begin < size) continue;
      ++fitting;
      if (range.end - range.begin < best.end - best.begin) best = range;
    }
    const auto found = holes.smallest(of, size);
    require((found == holes.end()) == (fitting == 0), "a hole is found where there is one");
    if (fitting > 0) require(found->first == best.begin && found->second.end == best.end, "it is the best fit");
    require(holes.has(of) == !ranges.empty(), "whether there is a hole of a state");
    std::vector<Bytes> up, down;
    holes.each_of(of, [&](Bytes begin, Bytes end) { return up.push_back(end - begin), begin >= 0; }, size);
    holes.each_down(of, [&](Bytes begin, Bytes end) { return down.push_back(end - begin), begin >= 0; });
    require(up.size() == fitting && std::is_sorted(up.begin(), up.end()), "those of a size, the smallest first");
    require(down.size() == ranges.size() && std::is_sorted(down.rbegin(), down.rend()), "all, the largest first");
    const Bytes begin = size * 7 % kUnits, end = std::min(kUnits, begin + 50);
    const auto is_free = [](State unit) { return unit != kTaken; };
    require(holes.within(begin, end) == std::count_if(state.begin() + begin, state.begin() + end, is_free),
            "what is free in a range is known");
  }
};

}  // namespace

int main() {
  std::mt19937 random(1);
  Heap heap;
  for (int change = 0; change < kChanges; ++change) {
    const State of = random() % kStates;
    const auto size = static_cast<Bytes>(1 + random() % (random() % 8 == 0 ? 60 : 6));
    if (!heap.live.empty() && random() % 2 == 0) {
      heap.give(random() % heap.live.size(), of, random() % 10);
    } else if (const auto hole = heap.holes.smallest(of, size); hole != heap.holes.end()) {
      heap.holes.promise(1);
      heap.take({hole->first, hole->first + size});
      heap.holes.take(hole, size);
    } else {  // out of the midst of whatever is free
      const auto any = heap.holes.at_or_after(static_cast<Bytes>(random() % kUnits));
      if (any == heap.holes.end()) continue;
      const Range range{any->first + (any->second.end - any->first) / 2, any->second.end};
      heap.holes.promise(2);
      heap.holes.cut(range.begin, range.end, nullptr);
      heap.take(range);
    }
    if (random() % 50 == 0) {
      const auto number = static_cast<std::uint64_t>(random() % 10);
      const std::vector<Range> before = heap.all(of);
      for (const Range range : before) {
        const bool ends = heap.holes.at_or_after(range.begin)->second.number <= number;
        if (ends) std::fill(heap.state.begin() + range.begin, heap.state.begin() + range.end, Holes::kOver);
      }
      heap.holes.end_uses(of, number);
    }
    if (random() % 10 == 0) heap.check(of, size);
  }
  std::printf("holes_stress: %d changes, all as in an array of units\n", kChanges);
}
