// A beam over skylines: many placements are built side by side, block by block, and only the promising ones go on.
//
// A state is a partial placement: its skyline, the blocks still waiting, and for every column the *prospect*: the
// height of the skyline there, plus all that waits or hangs above in that column. No completion can be lower than the
// highest prospect. Placing a block leaves the prospects alone; lifting a line raises those of its columns by what is
// wasted below it. So a state is as good as its prospects are low, and a state with a prospect above the limit is
// dropped.
//
//     prospect |   . . .              one column: skyline 5, waiting 4, so the prospect is 9. Lifting the line
//              |   w w w  waiting     under it by 1 makes it 10, for good.
//              |   w w w
//              |___######__ skyline
//
// From each state of a level (equal numbers of blocks placed) children are made on its lowest line: each of the blocks
// that lie inside it, and, once or twice, the line lifted although something would fit. Then lines on which nothing
// fits are lifted at once. The `width` children of least *pressure*, the sum over the columns of a power of the
// prospect above a foot, survive; of equal skylines over equal sets one. The beam fails when no state is left.
//
// Time O(n * width * branch * columns) at worst, memory O(width * (columns + n / 64) + n * width). After Burke, Kendall
// and Whitwell's best fit, and beam search as for strip packing; the bound is that of the sections of MiniMalloc
// (Moffitt, ASPLOS 2023).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../instance.hpp"
#include "control.hpp"

namespace stowplan::packing {

struct BeamOptions {
  std::int32_t width = 8;
  std::int32_t branch = 20;  // children per line at most: those worth most
  double foot = 0.9;         // prospects below foot * bound press nothing
  int power = 3;
};

class Beam {
 public:
  explicit Beam(const Instance& instance);

  // worth[k] of the k-th free block: what is worth most is tried first; of equals, the first. Returns the highest top
  // of a free block in the best placement found, with its offsets, or kNoCeiling when none stays at or below `limit` or
  // the watch has expired.
  Bytes run(const BeamOptions& options, const double* worth, Bytes limit, const Stopwatch& watch, Bytes* offset);

 private:
  struct Line {
    Column start, end;
    Bytes height;
  };
  struct State {
    std::vector<Line> lines;
    std::vector<Bytes> prospect;
    std::vector<std::uint64_t> waiting;  // a bit for each free block
    double pressure = 0;
    Bytes peak = 0;          // highest prospect
    std::int32_t step = -1;  // in steps_
    std::uint64_t mark = 0;  // of the set placed
    std::int32_t left = 0;   // blocks waiting
  };
  struct Step {
    std::int32_t before, block;
    Bytes offset;
  };

  double press(Bytes prospect) const;
  State root();
  void expand(const State& state);
  void offer(const State& child);
  void place(State& state, std::size_t line, std::int32_t block);
  bool lift(State& state, std::size_t line);
  bool settle(State& state);
  void waste(State& state, Column start, Column end, Bytes amount);
  std::size_t merge(State& state, std::size_t line);
  bool fits(const Line& line, std::int32_t block) const;
  Bytes ceiling(Column column, Bytes height) const;
  template <typename Visit>
  bool any_inside(const State& state, const Line& line, Visit&& visit) const;

  const Instance& in_;
  std::vector<std::vector<std::int32_t>> above_;  // by column: obstacles by rising bottom
  std::vector<Bytes> load_;
  std::vector<std::uint64_t> marks_;
  Bytes bound_ = 0;
  // The run in progress.
  BeamOptions options_;
  const double* worth_ = nullptr;
  Bytes limit_ = 0;
  double foot_ = 0;
  std::vector<Step> steps_;
  std::vector<State> level_, next_;
  std::vector<std::pair<double, std::int32_t>> heap_;  // pressure, place in next_; the worst on top
  std::unordered_map<std::uint64_t, double> seen_;     // the least pressure met, by the hash of a state
  State line_state_, child_;
  std::vector<std::int32_t> choices_;
};

}  // namespace stowplan::packing
