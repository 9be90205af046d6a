// All that a program has asked for, in order: how often a step of it has come.
//
//     requests   a b c a b c x a b c a b ...
//     step       a b c                            came 3 times, one not overlapping another: 9 of the requests
//
// Four bytes a request, for the first kMost; later ones count as not covered. Counting is O(n) (Knuth, Morris and Pratt
// 1977); it compares hashes of sizes, streams, and the bytes freed between the requests: on grids all sizes are alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "step_recorder.hpp"

namespace stowplan::profiler {

class RequestHistory {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 22;

  // `live`: bytes alive before the request.
  void add(Bytes size, Stream stream, Bytes live) {
    ++requests_;
    bytes_ += size;
    const Bytes freed = std::exchange(after_, live + size) - live;
    if (names_.size() >= kMost) return;
    try {
      names_.push_back(name(size, stream, freed));
    } catch (const std::bad_alloc&) {
    }
  }
  void clear() { *this = RequestHistory(); }

  std::uint64_t requests() const { return requests_; }
  Bytes bytes() const { return bytes_; }

  // How often a step of so many requests came, which began when there had been `start`.
  std::uint64_t count(std::uint64_t start, std::uint64_t requests) const {
    if (requests == 0 || start + requests > names_.size()) return 0;
    const auto first = names_.begin() + static_cast<std::ptrdiff_t>(start);
    const std::vector<std::uint32_t> step(first, first + static_cast<std::ptrdiff_t>(requests));
    std::vector<std::size_t> border(step.size() + 1, 0);  // of the step's first i requests
    for (std::size_t i = 1, k = 0; i < step.size(); ++i) {
      while (k > 0 && step[i] != step[k]) k = border[k];
      if (step[i] == step[k]) ++k;
      border[i + 1] = k;
    }
    std::uint64_t times = 0;
    std::size_t matched = 0;
    for (const std::uint32_t request : names_) {
      while (matched > 0 && request != step[matched]) matched = border[matched];
      if (request == step[matched]) ++matched;
      if (matched < step.size()) continue;
      ++times;
      matched = 0;
    }
    return times;
  }

 private:
  static std::uint32_t name(Bytes size, Stream stream, Bytes freed) {
    std::uint64_t mixed = 0;
    for (const std::int64_t part : {size, stream, freed}) {
      mixed = (mixed ^ static_cast<std::uint64_t>(part)) * 0xD6E8FEB86659FD93u;
      mixed ^= mixed >> 32;
    }
    return static_cast<std::uint32_t>(mixed);
  }

  std::vector<std::uint32_t> names_;
  std::uint64_t requests_ = 0;
  Bytes bytes_ = 0;
  Bytes after_ = 0;  // alive after the last request
};

}  // namespace stowplan::profiler
