// Which requests of a plan a step's requests are, if the step has another structure than the plan.
//
//   plan   a  b  b  b  b  c        loops run longer in one of the two, some requests stand in one of them only
//   step   a  b  b  x  c           -> 0 1 2 - 5
//
// The best match in the sense of O. Gotoh, An improved algorithm for matching biological sequences, J. Mol. Biol. 162
// (1982): a pair of the same kind scores, sizes that differ cost a little, and a gap costs once, however long it is, so
// that what is missing is missing in one piece: whole iterations of a loop. Requests may be told where to go (`vote`).
//
// Only cells in a band are looked at: O(cells) time, one byte each.
#pragma once

#include <cstdint>
#include <vector>

namespace stowplan::planning {

struct PlanRequests {
  std::vector<std::int64_t> least, most;  // bytes asked for
  std::vector<std::int64_t> kind;
};

struct StepRequests {
  std::vector<std::int64_t> size;
  std::vector<std::int64_t> kind;
  std::vector<std::int64_t> vote;  // number in the plan, or -1
};

// Per row (requests of the plan that are passed, 0 to n), the first and the last column (of the step, 0 to m) that are
// looked at. Neither falls from row to row; the first row begins at 0, the last one ends at m, and neighbours overlap.
struct Band {
  std::vector<std::int64_t> first, last;
};

// Per request of the step its number in the plan, or -1; increasing.
std::vector<std::int64_t> match(const PlanRequests& plan, const StepRequests& step, const Band& band);

}  // namespace stowplan::planning
