// Lowers a placement window by window: see window_repair.hpp.
//
// Finds its windows with three structures over the blocks, O(n) in all: the tops in a heap (with leftovers, skipped
// when met), the lifetimes by start, and the ends, sorted (how many are alive).
#pragma once

#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "../lifetimes.hpp"
#include "../problem.hpp"
#include "control.hpp"
#include "priority_weights.hpp"
#include "random.hpp"

namespace stowplan::packing {

class Repair {
 public:
  // `offset`: a valid placement, improved in place.
  Repair(const Problem& problem, const Control& control, const Stopwatch& watch, Bytes* offset);

  // Until the peak is `bound`, the effort is spent or the watch has expired.
  void run(Bytes bound, std::int64_t effort);

  Bytes peak() { return tallest().first; }

 private:
  using Tall = std::pair<Bytes, std::int32_t>;  // top, row

  Bytes top(std::int32_t row) const { return offset_[row] + problem_.size[row]; }
  Tall tallest();
  std::pair<Tick, Tick> window(std::int32_t row, std::int64_t breadth) const;
  bool retry(Tick start, Tick end, bool fresh, std::int64_t& effort);

  const Problem& problem_;
  const Stopwatch& watch_;
  Bytes* offset_;
  Random random_;
  std::priority_queue<Tall> tops_;
  Lifetimes<std::int32_t> alive_;  // with their rows
  std::vector<Tick> ends_;
};

}  // namespace stowplan::packing
