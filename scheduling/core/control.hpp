// What a caller may ask of an anytime solver, and what it tells on the way.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace stowplan::scheduling {

struct Control {
  double time_limit = std::numeric_limits<double>::infinity();  // wall-clock seconds
  std::int64_t effort = 0;  // evaluations at most after the greedy descent; with equal efforts, equal results
  std::uint64_t seed = 0;
  bool coarse = false;  // change groups alone, and do not search
  const std::atomic<bool>* cancel = nullptr;  // set from any thread: stop with the best so far
  void (*progress)(void* context, std::int64_t peak, double seconds) = nullptr;  // at improvements
  void* context = nullptr;
};

class Stopwatch {
 public:
  explicit Stopwatch(const Control& control) : control_(control), began_(std::chrono::steady_clock::now()) {}

  bool expired() const {
    if (control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed)) return true;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began_;
    return passed.count() >= control_.time_limit;
  }
  void report(std::int64_t peak, double seconds) const {
    if (control_.progress != nullptr) control_.progress(control_.context, peak, seconds);
  }

 private:
  const Control& control_;
  std::chrono::steady_clock::time_point began_;
};

// splitmix64 (Steele, Lea, Flood 2014): small, and the same on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace stowplan::scheduling
