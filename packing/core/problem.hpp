// What a solver sees: blocks as unions of rectangles, in columns.
//
// A block is one allocation. It is alive in [start, end) on the logical clock (half-open) and occupies `size` bytes
// from its offset. Gaps cut its lifetime into *pieces*: a piece is a rectangle, an interval of time by a window of the
// block's bytes. A block without gaps has one piece, [start, end) x [0, size). All pieces of a block share one offset.
//
//     bytes                 pieces of one block with the gaps 4-6 (absent) and 8-9@0:2 (only its bytes 0 and 1)
//       4 |  ####  ##
//       3 |  ####  ##
//       2 |  ####  #####
//       1 |  ####  #####
//         +--0123456789-> clock
//
// Two blocks conflict when some piece of one and some piece of the other overlap in time and in absolute address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stowplan::packing {

using Bytes = std::int64_t;  // sizes and offsets
using Tick = std::int64_t;   // logical clock

constexpr Bytes kUnplaced = -1;

// A view of columns owned by the caller. `n` blocks, `first_piece[n]` pieces.
struct Problem {
  std::size_t n = 0;
  const Bytes* size = nullptr;
  const Tick* start = nullptr;
  const Tick* end = nullptr;
  const Bytes* alignment = nullptr;  // >= 1: the offset is a multiple of it
  const Bytes* fixed = nullptr;      // the offset demanded, or kUnplaced
  // Pieces of block i: first_piece[i] .. first_piece[i + 1], by rising time.
  const std::int64_t* first_piece = nullptr;
  const Tick* piece_start = nullptr;
  const Tick* piece_end = nullptr;
  const Bytes* piece_lower = nullptr;  // window [lower, upper) of the block's bytes
  const Bytes* piece_upper = nullptr;
};

inline Bytes align_up(Bytes x, Bytes alignment) {
  return alignment == 1 ? x : (x + alignment - 1) / alignment * alignment;
}

}  // namespace stowplan::packing
