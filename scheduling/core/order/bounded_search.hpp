// Is there an order within a budget? Depth first over the sets of operators that have run.
//
// Safe moves. Let D have run, and let C, a larger set that is reached from D within the budget, have no more bytes
// alive than D, and no closed set between the two fewer than C. Then nothing is lost by going on from C alone: bytes
// alive are submodular, so any order that goes on from D has, with C put in front, nowhere more alive than before.
//
//     bytes |        ____            the search climbs from D, as long as it must; on arriving at C, every choice
//           |   ____/    \           that it made since D is settled for good: if C fails, D fails. Of a
//           |__/          \__        single operator that frees what it starts, and more, this is the
//           |  D             C       well-known rule to run it at once
//           +-------------------->
//
// If a closed set X between the two has fewer bytes alive than C, then the one with the fewest is reached within the
// budget as well (by the operators of X in the order in which they ran on the way to C), and the search goes on from
// X. X is a minimum cut (max_flow.hpp).
//
// Sets that have failed are remembered. A search that is finished without an order names the least budget at which it
// would have gone differently: no order has a smaller peak.
#pragma once

#include <cstdint>
#include <vector>

#include "control.hpp"
#include "max_flow.hpp"
#include "partial_order.hpp"

namespace stowplan::ordering {

// Sets of operators, by open addressing.
class Keys {
 public:
  bool contains(Key key) const;
  void insert(Key key);
  void clear();
  std::size_t size() const { return size_; }

 private:
  std::size_t slot(Key key) const;
  std::vector<Key> slots_;
  std::size_t size_ = 0;
};

enum class Verdict { kFound, kNone, kUnknown };

class BudgetSearch {
 public:
  explicit BudgetSearch(const Graph& graph);

  // At most `most` sets are looked at. `prefix` has run (its steps are not looked at), and of the others only those
  // of `window` are ordered, all of them where it is empty.
  Verdict decide(Bytes budget, std::int64_t most, const Stopwatch& watch, const std::vector<Op>& prefix = {},
                 const std::vector<Op>& window = {});

  // If kFound: the order with its prefix.
  const std::vector<Op>& order() const { return state_.order(); }
  // If kNone: no order has a smaller peak.
  Bytes next_budget() const { return next_budget_; }
  std::int64_t looked_at() const { return looked_at_; }

 private:
  struct Frame {
    std::size_t from;    // how many had run when this frame's set was first reached,
    std::size_t length;  // and how many have now
    Bytes live;
    std::vector<Key> keys;  // they fail if this frame does
    std::vector<Op> choices;
    std::size_t next = 0;
  };

  void begin(const std::vector<Op>& prefix, const std::vector<Op>& window);
  bool complete() const { return state_.length() == goal_; }
  void settle();
  bool settle_chain(Op op, Bytes most, int depth);
  std::vector<Op> choices();
  void arrive();
  bool sink(std::size_t from);
  void fail();

  const Graph& graph_;
  State state_;
  LowestSet lowest_;
  Keys failed_;
  std::vector<Frame> stack_;
  std::vector<Op> forbidden_;
  std::vector<Side> side_;  // all kIn between two calls of sink()
  Bytes budget_ = 0, next_budget_ = 0;
  std::size_t goal_ = 0;
  std::int64_t looked_at_ = 0;
};

}  // namespace stowplan::ordering
