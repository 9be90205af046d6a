// All that a program has asked for, in order: how often a step of it has come.
//
//     requests   a b c a b c x a b c a b ...
//     step       a b c                            came 3 times, one not overlapping another: 9 of the requests
//
// Four bytes a request, for the first kMost; later ones count as not covered. Counting is O(n) (Knuth, Morris and Pratt
// 1977); it compares hashes of sizes and streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "step_recorder.hpp"

namespace stowplan::profiler {

class RequestHistory {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 22;

  void add(Bytes size, Stream stream) {
    ++requests_;
    bytes_ += size;
    if (names_.size() >= kMost) return;
    try {
      names_.push_back(name(size, stream));
    } catch (const std::bad_alloc&) {
    }
  }
  void clear() { *this = RequestHistory(); }

  std::uint64_t requests() const { return requests_; }
  Bytes bytes() const { return bytes_; }

  // How often the requests of a step's log came.
  std::uint64_t count(const std::vector<Event>& log) const {
    std::vector<std::uint32_t> step;
    for (const Event& event : log) {
      if (event.kind == EventKind::allocate) step.push_back(name(event.size, event.stream));
    }
    if (step.empty()) return 0;
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
  static std::uint32_t name(Bytes size, Stream stream) {
    const std::uint64_t mixed =
        (static_cast<std::uint64_t>(size) + 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(stream + 1)) *
        0xD6E8FEB86659FD93u;
    return static_cast<std::uint32_t>(mixed >> 32);
  }

  std::vector<std::uint32_t> names_;
  std::uint64_t requests_ = 0;
  Bytes bytes_ = 0;
};

}  // namespace stowplan::profiler
