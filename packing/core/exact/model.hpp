// The exact solver's view of a problem: units instead of bytes, sections instead of ticks, conflicts in lists.
//
// A *section* is an interval of time in which the set of live pieces is constant. Only the maximal ones are kept: where
// the live set is part of a neighbour's, the neighbour's capacity test and conflicts say it all. A piece covers a
// contiguous range of the sections that are kept.
//
//     pieces      a aaaaaaaa        live sets  {a} {a,b} {a} {a,c} {c}
//                 b    bb           kept           {a,b}     {a,c}
//                 c       cccccc    ranges     a 0-1, b 0-0, c 1-1
//
// Sizes are divided by their greatest common divisor, the *unit*: some optimal placement uses multiples of it only,
// since every block of it rests on others. O(n log n + conflicts) to build, O(conflicts) memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../problem.hpp"

namespace stowplan::packing::exact {

using Units = std::int64_t;  // sizes and offsets divided by Model::unit

struct Conflict {
  std::int32_t block;
  Units above;  // how far above this block's offset the other one lies at least, when it lies above
  Units below;  // how far above the other one's offset this block lies at least, when it lies above
};

// Rectangle of a block: sections first..last (both included), [lower, upper) of the block's units.
struct Piece {
  std::int32_t first;
  std::int32_t last;
  Units lower;
  Units upper;
};

template <typename T>
struct Range {
  const T* first;
  const T* last;
  const T* begin() const { return first; }
  const T* end() const { return last; }
};

struct Model {
  Bytes unit = 1;
  bool floating = false;  // some piece has lower > 0
  std::int32_t n = 0;
  std::int32_t sections = 0;
  std::vector<Units> size;
  std::vector<Units> alignment;
  std::vector<Units> fixed;  // or kUnplaced
  std::vector<std::int32_t> first_piece;
  std::vector<Piece> pieces;
  std::vector<std::int32_t> first_section;  // of the block
  std::vector<std::int32_t> last_section;
  std::vector<std::int32_t> first_conflict;
  std::vector<Conflict> conflicts;
  std::vector<Units> load;              // per section
  std::vector<std::int32_t> next_twin;  // the next block with the same pieces, size and alignment, or -1
  std::vector<std::int64_t> width;      // ticks alive
  std::vector<std::int64_t> area;       // units times ticks
  Units lower_bound = 0;                // max load; a fixed block's or any block's own end where that is higher

  Range<Piece> pieces_of(std::int32_t i) const {
    return {pieces.data() + first_piece[i], pieces.data() + first_piece[i + 1]};
  }
  Range<Conflict> conflicts_of(std::int32_t i) const {
    return {conflicts.data() + first_conflict[i], conflicts.data() + first_conflict[i + 1]};
  }
  // Calls visit(piece, section) for all that the block covers.
  template <typename Visit>
  void each_section(std::int32_t i, Visit visit) const {
    for (const Piece& piece : pieces_of(i)) {
      for (std::int32_t s = piece.first; s <= piece.last; ++s) visit(piece, s);
    }
  }
  // The largest of some loads, one for each section, over the sections of a block.
  Units highest(const std::vector<Units>& loads, std::int32_t i) const {
    Units most = 0;
    each_section(i, [&](const Piece&, std::int32_t s) { most = std::max(most, loads[s]); });
    return most;
  }
};

// Every block must have a piece.
Model build_model(const Problem& problem);

}  // namespace stowplan::packing::exact
