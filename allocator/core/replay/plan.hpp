// A plan as the replay core reads it: what to do at request number k.
//
//   request   0     1     2     3     4   (end)
//   offset   512    0   none   256   512           none: an escaped block, always served upstream
//   due at          {}    {1}   {}   {0}  {3}      blocks whose planned free lies between request k-1 and request k
//
// A wrapped block is due at a number not above its own, in the following step.
//
// A plan may be of several steps, which take turns on it: where results of a step outlive their successors, each is
// kept in one of several places. Each step is then `step_length` requests long, and begins where the one before it
// ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace stowplan::allocator {

using Bytes = std::int64_t;
using RequestNumber = std::uint32_t;

constexpr Bytes kUnplanned = -1;
constexpr RequestNumber kNoRequest = UINT32_MAX;
using Stream = std::int64_t;
// CUDA's name for the calling thread's own default stream: many streams, that is, under one handle. A pool tells them
// apart by negative numbers, which are others in each run; a profile has the handle.
constexpr Stream kPerThread = 2;
using LaneNumber = std::uint16_t;

struct Plan {
  std::vector<Bytes> offset;             // in the arena, or kUnplanned
  std::vector<Bytes> requested;          // bytes asked for in the profiled step
  std::vector<Bytes> capacity;           // bytes reserved: `requested`, rounded up
  std::vector<Stream> stream;            // on which the block is used
  std::vector<std::uint32_t> due_begin;  // size() + 2 entries: due at k are due[due_begin[k]] .. due[due_begin[k + 1]]
  std::vector<RequestNumber> due;
  Bytes arena_bytes = 0;
  std::uint64_t tag = 0;          // the owner's name for it
  RequestNumber step_length = 0;  // requests of a step, in a plan of several, of which they are a whole part; else 0

  // prefix[k] is a hash of the sizes of the step before k: plans that begin alike are told apart where they part. That
  // of a whole step is in `whole`, by step_length.
  std::vector<std::uint64_t> prefix;
  std::vector<std::uint64_t> whole;

  std::size_t size() const { return offset.size(); }
  RequestNumber step_size() const { return step_length != 0 ? step_length : static_cast<RequestNumber>(size()); }
  // Of a step that began at a request, before another.
  std::uint64_t prefix_of(RequestNumber began, RequestNumber k) const {
    return step_length != 0 && k == began + step_length ? whole[began / step_length] : prefix[k];
  }

  // Blocks that are freed in the following step.
  std::vector<bool> wraps;

  // Returns the bytes that all columns take.
  std::size_t bytes() const {
    const std::size_t numbers = offset.size() + requested.size() + capacity.size() + stream.size();
    return (numbers + prefix.size() + whole.size()) * 8 + (due_begin.size() + due.size()) * 4 + wraps.size() / 8;
  }

  // Computes the columns that follow from the others.
  void derive() {
    wraps.assign(size(), false);
    for (RequestNumber k = 0; k <= size(); ++k) {
      for (std::uint32_t i = due_begin[k]; i < due_begin[k + 1]; ++i) wraps[due[i]] = k <= due[i];
    }
    prefix.assign(1, 0xCBF29CE484222325u);
    whole.clear();
    for (const Bytes size : requested) {
      const std::uint64_t mixed = (prefix.back() ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15u;
      prefix.push_back(mixed ^ (mixed >> 29));
      if (step_length == 0 || (prefix.size() - 1) % step_length != 0) continue;
      whole.push_back(prefix.back());
      prefix.back() = prefix.front();
    }
  }

  // Whether one of the requests from `from` on and before `until` needs what lies between two offsets.
  bool needs(Bytes low, Bytes high, RequestNumber from, RequestNumber until) const {
    while (from < until && !is_within(from, low, high)) ++from;
    return from < until;
  }

 private:
  bool is_within(RequestNumber k, Bytes low, Bytes high) const {
    return offset[k] != kUnplanned && offset[k] < high && low < offset[k] + capacity[k];
  }
};

using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace stowplan::allocator
