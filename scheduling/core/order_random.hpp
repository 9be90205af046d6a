// A small generator whose numbers are the same on every platform: splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

namespace stowplan::ordering {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x2545f4914f6cdd1du + 0x9e3779b97f4a7c15u) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, n), n >= 1.
  std::uint64_t below(std::uint64_t n) { return next() % n; }

 private:
  std::uint64_t state_;
};

}  // namespace stowplan::ordering
