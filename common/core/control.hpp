// What a caller may ask of an anytime solver, and what it tells on the way. Solvers of schedules take it, too.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace stowplan {

struct Control {
  double time_limit = std::numeric_limits<double>::infinity();  // wall-clock seconds
  std::int64_t effort = 0;  // work at most, in units of the solver; with equal efforts, equal results; 0: the default
  std::uint64_t seed = 0;
  int threads = 1;
  std::int64_t target = 0;  // a peak that is good enough: no solver that places blocks looks for less
  // Called several times a second, by any thread: where it returns false, the solver stops with the best so far.
  bool (*goes_on)(void* context) = nullptr;
  // At every improvement, one thread at a time: of an order with the lower bound, of a schedule with its extra seconds.
  void (*progress)(void* context, std::int64_t peak, std::int64_t lower_bound, double seconds) = nullptr;
  void* context = nullptr;
};

class Stopwatch {
 public:
  explicit Stopwatch(const Control& control) : control_(control), began_(std::chrono::steady_clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  bool expired() const {
    const double now = seconds();
    if (control_.goes_on != nullptr && now >= next_look_) {
      next_look_ = now + kPatience;
      if (!control_.goes_on(control_.context)) stopped_ = true;
    }
    return stopped_ || now >= std::min(control_.time_limit, pause_);
  }
  // Until the next call, expired() says so when this share of the time left is over; of 1: no sooner than else.
  void allow(double share) {
    const double now = seconds();
    pause_ = share < 1 ? now + share * (control_.time_limit - now) : control_.time_limit;
  }
  void report(std::int64_t peak, std::int64_t lower_bound = 0, double seconds = 0.0) const {
    if (control_.progress == nullptr) return;
    control_.progress(control_.context, peak, lower_bound, seconds);
    next_look_ = 0;  // the caller may have had enough
  }

 private:
  static constexpr double kPatience = 0.05;  // seconds

  const Control& control_;
  std::chrono::steady_clock::time_point began_;
  double pause_ = std::numeric_limits<double>::infinity();
  mutable std::atomic<double> next_look_{0};
  mutable std::atomic<bool> stopped_{false};
};

}  // namespace stowplan
