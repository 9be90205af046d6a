// The last requests of a program, as hashes: rolling ones of the last k (a *gram*), and one of all so far.
//
//     requests   a b c d e f g          gram of 4 before g:   hash of c d e f
//
// Each request counts with its size, its stream and the bytes freed since the one before. O(1) for each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "step_recorder.hpp"

namespace stowplan::profiler {

class Grams {
 public:
  static constexpr std::array<std::uint32_t, 2> kLengths{4, 32};
  static constexpr std::size_t kLongest = kLengths.size() - 1;

  void add(Bytes size, Stream stream, Bytes freed) {
    std::uint64_t symbol = mix(static_cast<std::uint64_t>(size));
    symbol = mix(symbol ^ static_cast<std::uint64_t>(freed));
    symbol = mix(symbol ^ static_cast<std::uint64_t>(stream));
    all_ = all_ * kBase + symbol;
    for (std::size_t kind = 0; kind < kLengths.size(); ++kind) {
      const std::uint64_t oldest = last_[(seen_ - kLengths[kind]) % kRing];
      gram_[kind] = gram_[kind] * kBase + symbol - oldest * kPowers[kind];
    }
    last_[seen_ % kRing] = symbol;
    ++seen_;
  }

  // Of the last kLengths[kind] requests.
  std::uint64_t operator[](std::size_t kind) const { return gram_[kind]; }

  // Of all requests so far; and of the last n of them, where `before` was that of all before these.
  std::uint64_t all() const { return all_; }
  static std::uint64_t since(std::uint64_t before, std::uint64_t all, std::uint64_t n) {
    return all - before * power(n);
  }

 private:
  static constexpr std::uint64_t kBase = 0x9E3779B97F4A7C15u;
  static constexpr std::uint32_t kRing = kLengths[kLongest];

  static constexpr std::uint64_t power(std::uint64_t n) {
    std::uint64_t result = 1;
    for (std::uint64_t square = kBase; n != 0; n >>= 1, square *= square) result *= (n & 1) != 0 ? square : 1;
    return result;
  }
  static constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
  }

  const static std::array<std::uint64_t, kLengths.size()> kPowers;

  std::array<std::uint64_t, kRing> last_{};  // zeros before the first
  std::array<std::uint64_t, kLengths.size()> gram_{};
  std::uint64_t seen_ = kRing;
  std::uint64_t all_ = 0;
};

inline constexpr std::array<std::uint64_t, Grams::kLengths.size()> Grams::kPowers{Grams::power(Grams::kLengths[0]),
                                                                                  Grams::power(Grams::kLengths[1])};

}  // namespace stowplan::profiler
