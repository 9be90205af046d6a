// What a caller may ask of a search, and what it hears on the way.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "graph.hpp"

namespace stowplan::ordering {

struct Control {
  double time_limit = std::numeric_limits<double>::infinity();  // wall-clock seconds
  // Called on the caller's thread several times a second, and at every improvement; the search stops where it returns
  // false.
  bool (*heard)(void* context, Bytes peak, Bytes lower_bound) = nullptr;
  void* context = nullptr;
};

class Watch {
 public:
  explicit Watch(const Control& control) : control_(control), began_(Clock::now()), told_(began_) {}

  double seconds() const { return since(began_); }
  // What is known; told to the caller where it is better than before.
  void tell(Bytes peak, Bytes lower_bound) {
    if (peak == peak_ && lower_bound == bound_) return;
    peak_ = peak;
    bound_ = lower_bound;
    ask();
  }
  bool expired() {
    if (!stopped_ && since(told_) > kPatience) ask();
    return stopped_ || seconds() >= std::min(control_.time_limit, pause_);
  }
  // Until the next call, expired() says so when this share of the time left is over.
  void allow(double share) {
    const double now = seconds();
    pause_ = share < 1 ? now + share * (control_.time_limit - now) : std::numeric_limits<double>::infinity();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kPatience = 0.05;

  static double since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }
  void ask() {
    told_ = Clock::now();
    if (control_.heard != nullptr && !control_.heard(control_.context, peak_, bound_)) stopped_ = true;
  }

  const Control& control_;
  Clock::time_point began_, told_;
  double pause_ = std::numeric_limits<double>::infinity();
  Bytes peak_ = 0, bound_ = 0;
  bool stopped_ = false;
};

}  // namespace stowplan::ordering
