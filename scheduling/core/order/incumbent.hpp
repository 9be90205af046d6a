// The best order so far, and the greatest lower bound: what all solvers of one call share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "control.hpp"
#include "graph.hpp"

namespace stowplan::ordering {

// kJoined: joining operators (chain_contraction.hpp) was enough.
enum class Method : int { kJoined, kGreedy, kExact, kLocal };

class Incumbent {
 public:
  Incumbent(const Graph& graph, const Control& control, std::vector<Op> order)
      : watch_(control), order_(std::move(order)), peak_(peak_of(graph, order_)) {}

  const std::vector<Op>& order() const { return order_; }
  Bytes peak() const { return peak_; }
  Bytes lower_bound() const { return bound_; }
  Method found_by() const { return found_by_; }
  bool closed() const { return peak_ <= bound_; }
  Stopwatch& watch() { return watch_; }
  // Nothing is left to do, or no time.
  bool over() const { return closed() || watch_.expired(); }

  // Whether the order, of this peak, is better than what was there.
  bool offer(const std::vector<Op>& order, Bytes peak, Method method) {
    if (peak >= peak_) return false;
    order_ = order;
    peak_ = peak;
    found_by_ = method;
    watch_.report(peak_, bound_);
    return true;
  }
  // No order has a smaller peak than this.
  void raise(Bytes bound) {
    bound = std::min(bound, peak_);
    if (bound <= bound_) return;
    bound_ = bound;
    watch_.report(peak_, bound_);
  }

  std::int64_t states = 0;  // sets of operators looked at

 private:
  Stopwatch watch_;
  std::vector<Op> order_;
  Bytes peak_, bound_ = 0;
  Method found_by_ = Method::kJoined;
};

}  // namespace stowplan::ordering
