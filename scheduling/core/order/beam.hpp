// A beam: of the sets of operators with equally many members, only those with the fewest bytes alive are followed.
//
//     members     0    1    2    3    4    5    6 ...      each set is followed by what may run next and fits below the
//                 o -> o -> o -> o ------> o               best peak known, and then by all safe moves
//                  \-> o -> o ------> o -> o
//                   \> x    o -> x                         x: more alive than the `width` best of the same level
//
// A beam that finds an order lowers the budget of the next. Orders are kept as a tree; one set's counts become
// another's by going back to their last common ancestor. O(n * width * ready) a beam.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "incumbent.hpp"
#include "state.hpp"

namespace stowplan::ordering {

class Beam {
 public:
  explicit Beam(const Graph& graph) : graph_(graph), state_(graph) {}

  // Whether an order within the budget was found; then order() has it.
  bool run(Bytes budget, std::int32_t width, Watch& watch);
  const std::vector<Op>& order() const { return state_.order(); }
  std::int64_t looked_at() const { return looked_at_; }

 private:
  struct Node {
    std::int32_t parent;
    std::int32_t depth;   // of its ancestors
    std::int32_t length;  // how many operators have run
    Bytes live;
    Key key;
    std::vector<Op> ops;  // that ran since its parent
  };
  using Level = std::vector<std::int32_t>;  // nodes

  void begin(Bytes budget);
  void visit(std::int32_t node);
  void settle(Bytes budget);
  void follow(std::int32_t node, Bytes budget, std::int32_t width);
  void add(std::int32_t parent, std::size_t length, std::int32_t width);
  void keep_best(Level& level, std::int32_t width);

  const Graph& graph_;
  State state_;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> unused_;  // nodes
  std::vector<std::int32_t> path_;    // nodes from the first to the one whose counts state_ has
  std::map<std::int32_t, Level> levels_;
  std::int64_t looked_at_ = 0;
};

// Beams of one width, until one does not find an order below the best.
void beam(const Graph& graph, Incumbent& best, std::int32_t width);

}  // namespace stowplan::ordering
