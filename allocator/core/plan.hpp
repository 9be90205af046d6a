// A plan as the replay core reads it: what to do at request number k.
//
//   request   0     1     2     3     4   (end)
//   offset   512    0   none   256   512           none: an escaped block, always served upstream
//   due at          {}    {1}   {}   {0}  {3}      blocks whose planned free lies between request k-1 and request k
//
// A wrapped block is due at a number not above its own, in the following step.
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

struct Plan {
  std::vector<Bytes> offset;     // in the arena, or kUnplanned
  std::vector<Bytes> requested;  // bytes asked for in the profiled step
  std::vector<Bytes> capacity;   // bytes reserved: `requested`, rounded up
  std::vector<Stream> stream;    // on which the block is used
  std::vector<std::uint32_t> due_begin;  // size() + 2 entries: due at k are due[due_begin[k]] .. due[due_begin[k + 1]]
  std::vector<RequestNumber> due;
  Bytes arena_bytes = 0;
  std::uint64_t tag = 0;  // the owner's name for it

  // prefix[k] is a hash of the first k sizes: plans that begin alike are told apart where they part.
  std::vector<std::uint64_t> prefix;

  std::size_t size() const { return offset.size(); }

  // Blocks that are freed in the following step.
  std::vector<bool> wraps;

  // Computes the columns that follow from the others.
  void derive() {
    wraps.assign(size(), false);
    for (RequestNumber k = 0; k <= size(); ++k) {
      for (std::uint32_t i = due_begin[k]; i < due_begin[k + 1]; ++i) wraps[due[i]] = k <= due[i];
    }
    prefix.assign(1, 0xCBF29CE484222325u);
    for (const Bytes size : requested) {
      const std::uint64_t mixed = (prefix.back() ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15u;
      prefix.push_back(mixed ^ (mixed >> 29));
    }
  }
};

using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace stowplan::allocator
