// Local search: windows of the best order are put in order again, by search, so that they fit below its peak.
//
//     bytes |          _ peak
//           |    _    / \                 |---window---|   what is before and after it stays: the bytes alive at its
//           |   / \__/   \    _           |            |   two edges are given, and what is between can change
//           |__/          \__/ \___
//           +------|---window---|---->
//
// Every place above a budget lies in a window; the order that has all of them mended has a smaller peak. Windows that
// cannot be mended grow to twice their length; the budget goes from far below the peak to just below it.
#pragma once

#include <cstdint>

#include "graph.hpp"
#include "incumbent.hpp"

namespace stowplan::ordering {

// Until the incumbent is over, or no window of any length can be mended by looking at `most` sets.
void local(const Graph& graph, Incumbent& best, std::int64_t most);

}  // namespace stowplan::ordering
