// A small generator whose numbers are the same on every platform (the standard's distributions are not): splitmix64
// (Steele, Lea and Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

namespace stowplan {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, n), n >= 1.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  // In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // In [-1, 1), triangular about 0.
  double wobble() { return unit() - unit(); }

 private:
  std::uint64_t state_;
};

}  // namespace stowplan
