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

// Blocks of a model that can be searched: the search recurses that deep, its bit sets grow squared. For larger ones no
// conflicts are listed, which may be millions.
constexpr std::int32_t kMostBlocks = 5000;

struct Model {
  Bytes unit = 1;
  bool floating = false;  // some piece has lower > 0
  std::int32_t n = 0;
  std::int32_t sections = 0;
  std::vector<std::int32_t> block;  // its number in the problem
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
};

// The blocks of `problem` named in `blocks` (all with at least one non-empty piece).
Model build_model(const Problem& problem, const std::vector<std::int32_t>& blocks);

// Groups of blocks (non-empty ones only) whose lifetimes, from first start to last end, are connected.
std::vector<std::vector<std::int32_t>> components(const Problem& problem);

}  // namespace stowplan::packing::exact
