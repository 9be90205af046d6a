// Stacks the free blocks of an Instance around its obstacles, those of better rank preferred.
//
// The skyline rule of best fit (see best_fit.hpp), with ceilings. A line is an interval of columns at one height.
// Repeat until every free block is placed:
//
//     take a line lower than both neighbours;
//     among the waiting blocks whose columns lie inside it and which fit between it and the obstacles above, place
//     the one of best rank on it;
//     if there is none, lift the line to its lower neighbour or to the lowest obstacle above it, whichever comes first.
//     What then touches an obstacle from below goes on at the obstacle's top. Lines of equal height merge.
//
//     bytes |        ____            The line under the obstacle # can be filled; where nothing fits any more it rises
//           |        ####            to the bottom of #, and where that touches, to its top.
//           |  ooo   ####  ooo
//           |  oooo________ooo
//           +-------------------> columns
//
// Which of several low lines comes first has no influence: blocks inside one are not inside another, and a line does not
// change before its lower neighbours have risen to it. So the work walks downhill instead of keeping a heap. O(n log n)
// in practice: a query descends a tree over the blocks by start, whose nodes know the best rank, the least end and the
// least size below them; ceilings are a tree over the columns with assignment of ranges.
#pragma once

#include <cstdint>
#include <vector>

#include "search_instance.hpp"

namespace stowplan::packing {

class Refill {
 public:
  explicit Refill(const Instance& instance);

  // rank[k]: of the k-th free block, lower is preferred, all different. offset[k]: results. Returns the highest top
  // among the free blocks, or kNoCeiling (offsets undefined) as soon as one would pass `limit`.
  Bytes run(const std::int32_t* rank, Bytes limit, Bytes* offset);

  // Tree nodes looked at since construction: what the runs have cost, on any machine.
  std::int64_t visits() const { return visits_; }

 private:
  struct Waiting {
    std::int32_t rank;
    Column end;
    Bytes size;
  };
  struct Ceiling {
    Bytes low, high;
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

  void reset(const std::int32_t* rank);
  std::int32_t best_in(const Line& line);
  void descend(std::int32_t node, std::int32_t lo, std::int32_t hi, std::int32_t from, std::int32_t to);
  void remove(std::int32_t block);
  void pull(std::int32_t node);

  Bytes ceiling(Column start, Column end) { return ceiling_in(1, 0, ceiling_leaves_, start, end); }
  Bytes ceiling_in(std::int32_t node, Column lo, Column hi, Column start, Column end);
  Bytes highest_in(std::int32_t node, Column lo, Column hi, Column start, Column end);
  void set_ceiling(std::int32_t node, Column lo, Column hi, const Sight& sight);
  void touching(std::int32_t node, Column lo, Column hi, Column start, Column end, Bytes height);
  void mark(std::int32_t node, std::int32_t obstacle);
  void push(std::int32_t node);

  std::int32_t lift(std::int32_t line);
  std::int32_t put(std::int32_t line, std::int32_t block, Bytes offset);
  std::int32_t splice(std::int32_t line, const std::vector<Band>& bands);

  const Instance& in_;
  std::int32_t leaves_ = 1, ceiling_leaves_ = 1;
  std::vector<Waiting> waiting_;
  std::vector<Ceiling> ceilings_;
  std::vector<Line> lines_;
  std::vector<Sight> touched_;
  std::vector<Band> bands_;
  // The query in progress.
  const Line* line_ = nullptr;
  Bytes room_ = 0;
  std::int32_t best_ = -1, best_rank_ = 0;
  std::int64_t visits_ = 0;
};

}  // namespace stowplan::packing
