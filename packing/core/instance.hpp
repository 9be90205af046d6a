// What `window_repair` and `search` work on: free blocks among obstacles, on compressed time.
//
// Free blocks are plain rectangles that a skyline can stack. Everything else is an *obstacle*, a rectangle that stays
// where it is: blocks with a fixed offset, blocks with gaps where a start placement has put them, and, when only a
// window of time is solved again, the blocks that reach into it from outside.
//
//     bytes |      ######          #: obstacle, o: free blocks around it
//           |  ooooo######         Sight: what is seen looking up from the floor or from the top of an obstacle.
//           |  ooooooooooooo       The sights of all obstacles together are O(obstacles) long.
//           +---------------> columns
//
// Columns: between two ticks at which no block starts, the live set only shrinks; so time is cut only where a start
// follows an end, and a block's last column may be longer than the block. Blocks share a column exactly if one is
// alive at a moment at which the other is too, or if both are alive at the same moment by the end of the column's
// starts; two blocks conflict in time if and only if they share a column. O((n + k) log(n + k)) for n blocks and k
// obstacles.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "problem.hpp"

namespace stowplan::packing {

using Column = std::int32_t;

constexpr Bytes kNoCeiling = std::numeric_limits<Bytes>::max();

// A rectangle in ticks and bytes; in columns once it is part of an Instance.
struct Obstacle {
  Tick start, end;
  Bytes lower, upper;
};

// Seen from below in columns [start, end): obstacle `above`, or -1 for the open sky.
struct Sight {
  Column start, end;
  std::int32_t above;
};

struct Instance {
  Column columns = 0;
  std::vector<std::int32_t> row;  // free blocks by rising first column (ties by row): their row in the problem
  std::vector<Column> start, end;
  std::vector<Bytes> size, alignment;
  std::vector<std::int32_t> first;  // columns + 1: first[c] is the first free block with start >= c
  std::vector<Obstacle> obstacles;  // in columns
  std::vector<Sight> floor;
  std::vector<std::vector<Sight>> sights;  // from the top of each obstacle

  std::int32_t count() const { return static_cast<std::int32_t>(row.size()); }
};

// `free` must hold rows of blocks without gaps. Obstacles must not overlap each other.
Instance make_instance(const Problem& problem, const std::vector<std::int32_t>& free,
                       const std::vector<Obstacle>& obstacles);

// Whether a skyline can stack the block: not fixed, and a single piece that is the whole block.
bool is_plain(const Problem& problem, std::size_t row);

// Appends the pieces of a placed block, cut to the ticks [start, end).
void add_obstacles(const Problem& problem, std::size_t row, Bytes offset, Tick start, Tick end,
                   std::vector<Obstacle>& obstacles);

// The plain blocks of a problem around all others, which stay where `offset` has them. `top`: where the highest of
// these ends.
Instance around_others(const Problem& problem, const Bytes* offset, Bytes& top);

// For each free block the largest sum of sizes, obstacles included, in one of its columns.
std::vector<Bytes> crowding(const Instance& instance);

Bytes peak_of(const Problem& problem, const Bytes* offset);

}  // namespace stowplan::packing
