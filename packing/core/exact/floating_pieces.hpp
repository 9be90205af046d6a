// The decision for problems with floating pieces (a window that begins above its block's offset).
//
// There, a block may rest on one that has a higher offset, and the order by rising offset is no longer enough. What
// still holds: in the lowest placement of a given stacking every block is at 0, at its fixed offset, or rests with one
// of its pieces upon a piece of another, and these supports form a forest. So: take any open block at such a point,
// place it there, or rule this point out for it. Complete, and weak: for small problems.
#pragma once

#include <vector>

#include "decision.hpp"

namespace stowplan::packing::exact {

// `offsets` is set on `yes`.
Answer solve_pieces(const Model& model, Units capacity, std::uint64_t node_limit, Budget& budget,
                    std::vector<Units>& offsets);

}  // namespace stowplan::packing::exact
