// What a caller may ask of an anytime solver, and what it tells on the way. Solvers of schedules take it, too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

#include "problem.hpp"

namespace stowplan::packing {

struct Control {
  double time_limit = std::numeric_limits<double>::infinity();  // wall-clock seconds
  std::int64_t effort = 0;  // work at most, in units of the solver; with equal efforts, equal results; 0: the default
  std::uint64_t seed = 0;
  int threads = 1;
  const std::atomic<bool>* cancel = nullptr;  // set from any thread: stop with the best so far
  // At every improvement, one thread at a time. Seconds since the call; of a schedule, those that it adds to a step.
  void (*progress)(void* context, Bytes peak, double seconds) = nullptr;
  void* context = nullptr;
};

class Stopwatch {
 public:
  explicit Stopwatch(const Control& control) : control_(control), began_(std::chrono::steady_clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  bool expired() const {
    return (control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed)) ||
           seconds() >= control_.time_limit;
  }
  void report(Bytes peak) const { report(peak, seconds()); }
  void report(Bytes peak, double seconds) const {
    if (control_.progress != nullptr) control_.progress(control_.context, peak, seconds);
  }

 private:
  const Control& control_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace stowplan::packing
