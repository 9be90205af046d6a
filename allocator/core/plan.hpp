// A plan as the replay core reads it: what to do at request number k.
//
//   request   0     1     2     3     4   (end)
//   offset   512    0   none   256   512           none: an escaped block, always served upstream
//   due at          {}    {1}   {}   {0}  {3}      blocks whose planned free lies between request k-1 and request k
//
// A wrapped block is due at a number not above its own, in the following step.
//
// A *merged* plan stands for steps that differ: its requests are those of all of them, with their largest sizes, and each
// step asks for some of them. What it knows beside that helps to find out where a step is (tracker.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
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

  // Of a merged plan; else empty.
  std::vector<Bytes> least;            // the smallest size that was seen
  std::vector<RequestNumber> end;      // where the block is due, size() if not before the end of the step
  std::vector<RequestNumber> landmark;  // where the block is due, if it was in every step, else kNoRequest
  std::vector<std::uint8_t> sign;      // what can be seen of a request as it comes; see sign_of()
  std::vector<std::pair<std::uint64_t, RequestNumber>> index;  // the last kSigns signs at each number; sorted

  static constexpr RequestNumber kShort = 8;
  static constexpr int kSignBits = 3;
  static constexpr RequestNumber kSigns = 16;
  static constexpr RequestNumber kLasting = 64;
  static constexpr RequestNumber kLandmark = 256;  // more than what passes from one iteration of a loop to the next

  // Of a request that follows on `frees` frees of blocks not older than kShort requests, and asks for as much as the one
  // before it, or not.
  static std::uint8_t sign_of(std::uint32_t frees, bool same) {
    return static_cast<std::uint8_t>(std::min<std::uint32_t>(frees, 3) << 1 | (same ? 1 : 0));
  }
  static std::uint64_t append(std::uint64_t signs, std::uint8_t sign) {
    return (signs << kSignBits | sign) & ((std::uint64_t{1} << (kSignBits * kSigns)) - 1);
  }

  std::size_t size() const { return offset.size(); }
  bool merged() const { return !least.empty(); }
  bool lasting(RequestNumber k) const { return end[k] == size() || end[k] - k > kLasting; }

  // Makes the plan a merged one. `at_same_place`: blocks that were freed at the same place in every step.
  void merge(std::vector<Bytes> smallest, const std::vector<std::uint8_t>& at_same_place) {
    least = std::move(smallest);
    end.assign(size(), static_cast<RequestNumber>(size()));
    landmark.assign(size(), kNoRequest);
    sign.clear();
    index.clear();
    std::uint64_t signs = 0;
    for (RequestNumber k = 0; k < size(); ++k) {
      std::uint32_t frees = 0;
      for (std::uint32_t i = due_begin[k]; i < due_begin[k + 1]; ++i) {
        const RequestNumber slot = due[i];
        if (slot < k && k - slot <= kShort) ++frees;
        if (slot < k) end[slot] = k;
        if (slot < k && k - slot > kLandmark && at_same_place[slot] != 0) landmark[slot] = k;
      }
      const bool same = k > 0 && requested[k] == requested[k - 1] && least[k] == least[k - 1];
      sign.push_back(sign_of(frees, same));
      signs = append(signs, sign.back());
      if (k + 1 >= kSigns) index.emplace_back(signs, k);
    }
    std::sort(index.begin(), index.end());
  }

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
