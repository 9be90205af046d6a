// What a search for an order asks now and then: whether to go on.
#pragma once

#include <limits>

#include "control.hpp"

namespace stowplan::ordering {

class Watch : public Stopwatch {
 public:
  explicit Watch(const Control& control) : Stopwatch(control), limit_(control.time_limit) {}

  bool expired() const { return Stopwatch::expired() || seconds() >= pause_; }
  // Until the next call, expired() says so when this share of the time left is over.
  void allow(double share) {
    const double now = seconds();
    pause_ = share < 1 ? now + share * (limit_ - now) : std::numeric_limits<double>::infinity();
  }

 private:
  double limit_;
  double pause_ = std::numeric_limits<double>::infinity();
};

}  // namespace stowplan::ordering
