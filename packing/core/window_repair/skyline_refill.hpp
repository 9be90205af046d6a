// Stacks the free blocks of an Instance around its obstacles: at every step the one that pays best.
//
// The skyline rule of best fit (../best_fit/best_fit.hpp), with ceilings. A line is an interval of columns at one
// height.
// Repeat until every free block is placed:
//
//     take a line lower than both neighbours;
//     among the waiting blocks whose columns lie inside it and which fit between it and the obstacles above, place
//     the one of greatest worth x fit on it;
//     if there is none, lift the line to its lower neighbour or to the lowest obstacle above it, whichever comes first.
//     What then touches an obstacle from below goes on at the obstacle's top. Lines of equal height merge.
//
// A block that is shorter than its line leaves a sliver at either side. What lives long enough to be tall seldom lives
// shortly enough to go in there, so a sliver is mostly lost, as far up as the walls reach; a wide one can be used:
//
//     bytes |  |  _____  __          fit = area / (area + lost), where each side loses
//           |  | |     |x|             min(width of the sliver, reach) * min(size, height of the wall)
//           |  |x|  b  |x|
//           |  |x|_____|x|           A static order cannot know slivers. Worth says which blocks matter, fit which one
//           +-------------------> columns    of these goes here. With a reach of 0, the one of greatest worth always
//           does.
//
//     bytes |        ____            The line under the obstacle # can be filled; where nothing fits any more it rises
//           |        ####            to the bottom of #, and where that touches, to its top.
//           |  ooo   ####  ooo
//           |  oooo________ooo
//           +-------------------> columns
//
// Which of several low lines comes first has no influence: blocks inside one are not inside another, and a line does
// not change before its lower neighbours have risen to it; nor do its walls. So the work walks downhill instead of
// keeping a heap. O(n log n) in practice: a query descends a tree over the blocks by start, whose nodes know the
// greatest worth and the least end below them; ceilings are a tree over the columns with assignment of ranges.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "../instance.hpp"
#include "control.hpp"

namespace stowplan::packing {

class SkylineRefill {
 public:
  SkylineRefill(const Instance& instance, const Stopwatch& watch);

  // worth[k] > 0 of the k-th free block; of equals the first is preferred. offset[k]: results. Returns the highest top
  // among the free blocks, or kNoCeiling (offsets undefined) as soon as one would pass `limit`, or the watch has
  // expired.
  Bytes run(const double* worth, Column reach, Bytes limit, Bytes* offset);

  // What the runs since construction have cost, on any machine: blocks handled, and looks at nodes and blocks.
  std::int64_t work() const { return handled_ + looks_ / kLooksPerBlock; }

 private:
  struct Waiting {
    double worth;
    Column end;
  };
  struct Below {  // what waits below a node
    double most_worth;
    Column least_end;
  };
  struct Ceiling {
    Bytes low;
    std::int32_t only;  // the one obstacle seen in all columns below this node, -1 for the sky, kMixed
  };
  struct Line {
    Column start, end;
    Bytes height;
    std::int32_t before, after;
  };
  struct Band {
    Column start, end;
    Bytes height;
  };

  static constexpr std::int32_t kBucket = 16;               // blocks below a leaf
  static constexpr std::int64_t kLooksPerBlock = 64;        // how many cost as much as to handle a block
  static constexpr std::int64_t kBetweenTimes = 1'000'000;  // looks, between two at the clock: some milliseconds
  static constexpr Waiting kGone = {0, std::numeric_limits<Column>::max()};

  void reset(const double* worth);
  std::int32_t best_in(const Line& line, Bytes before, Bytes after);
  void descend(std::int32_t node, std::int32_t lo, std::int32_t hi);
  void scan(std::int32_t first, std::int32_t last);
  bool fits(std::int32_t block);
  void remove(std::int32_t block);
  void pull(std::int32_t node);
  void pull_bucket(std::int32_t node);

  Bytes ceiling(Column start, Column end) { return ceiling_in(1, 0, ceiling_leaves_, start, end); }
  Bytes ceiling_in(std::int32_t node, Column lo, Column hi, Column start, Column end);
  void set_ceiling(std::int32_t node, Column lo, Column hi, const Sight& sight);
  void touching(std::int32_t node, Column lo, Column hi, Column start, Column end, Bytes height);
  void mark(std::int32_t node, std::int32_t obstacle);
  void push(std::int32_t node);

  std::int32_t lift(std::int32_t line);
  std::int32_t put(std::int32_t line, std::int32_t block, Bytes offset);
  std::int32_t splice(std::int32_t line, const std::vector<Band>& bands);

  const Instance& in_;
  const Stopwatch& watch_;
  std::int32_t leaves_ = 1, ceiling_leaves_ = 1;
  std::vector<Waiting> waiting_;
  std::vector<Below> tree_;
  std::vector<Ceiling> ceilings_;
  std::vector<Line> lines_;
  std::vector<Sight> touched_;
  std::vector<Band> bands_;
  // The query in progress.
  const Line* line_ = nullptr;
  std::int32_t from_ = 0, to_ = 0;  // blocks that start in the line
  double wall_before_ = 0, wall_after_ = 0, reach_ = 0;
  std::int32_t best_ = -1;
  double best_score_ = 0;
  std::int64_t handled_ = 0, looks_ = 0, timed_ = 0;  // looks; and those until the last at the clock
};

}  // namespace stowplan::packing
