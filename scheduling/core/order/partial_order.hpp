// The set of operators that have run, with all that a search asks of it kept up to date in either direction.
//
// Running an operator, or taking it back, costs what it starts and ends and what comes directly after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph.hpp"

namespace stowplan::ordering {

// Stands for a set of operators: the exclusive or of 128 random bits for each. Two sets are taken for one with a
// chance of 2^-128.
struct Key {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Key& other) const { return low == other.low && high == other.high; }
};

class State {
 public:
  explicit State(const Graph& graph);

  // Bytes alive between operators.
  Bytes live() const { return live_; }
  // Bytes at the fullest moment of an operator that would run now; and by how many more are alive after it.
  Bytes step(Op op) const { return live_ + alloc_[op] + graph_->extra[op]; }
  Bytes net(Op op) const { return alloc_[op] - free_[op]; }

  const std::vector<Op>& ready() const { return ready_; }
  const std::vector<Op>& order() const { return order_; }
  std::size_t length() const { return order_.size(); }
  bool ran(Op op) const { return place_[op] == kRan; }
  bool is_ready(Op op) const { return place_[op] >= 0; }
  Key key() const { return key_; }

  void run(Op op);
  // Runs, in one pass over those ready, what frees as much as it starts and fits the budget. Whether there was any.
  bool run_if_free(Bytes budget);
  void undo();
  void undo_to(std::size_t length) {
    while (order_.size() > length) undo();
  }
  // From now on, until `allow`: never ready. It has not run, and is not ready.
  void forbid(Op op);
  void allow(Op op);

  // Whether everything kept up to date is what it would be if it were computed from scratch.
  bool consistent() const;

 private:
  static constexpr std::int32_t kWaiting = -1, kRan = -2;

  void make_ready(Op op) {
    place_[op] = static_cast<std::int32_t>(ready_.size());
    ready_.push_back(op);
  }
  void take_from_ready(Op op);

  const Graph* graph_;
  Bytes live_ = 0;
  Key key_;
  std::vector<Op> ready_, order_;
  std::vector<std::int32_t> place_;    // of each operator: among those ready, or kWaiting, or kRan
  std::vector<std::int32_t> waiting_;  // for so many operators before it
  std::vector<Bytes> alloc_, free_;    // of each operator, were it to run now
  std::vector<std::int32_t> started_;  // of each storage: how many of its starts have run
  std::vector<std::int32_t> left_;     // and how many of its ends have not;
  std::vector<std::int64_t> rest_;     // the sum of their numbers: of one left, its number
};

}  // namespace stowplan::ordering
