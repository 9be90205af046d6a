// A plan as the replay core reads it: what to do at request number k.
//
//   request   0     1     2     3     4   (end)
//   offset   512    0   none   256   512           none: an escaped block, always served upstream
//   due at          {}    {1}   {}   {0}  {3}      blocks whose planned free lies between request k-1 and request k
//
// A wrapped block is due at a number not above its own, in the following step.
//
// A plan may be of two steps, which take turns on it: where results of a step outlive their successors, each is kept in one
// of two places. A step then begins at request 0 or at `half`.
//
// A *merged* plan stands for steps that differ: its requests are those of all of them, with their largest sizes, and each
// step asks for some of them. What it knows beside that helps to find out where a step is (tracker.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
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
  RequestNumber half = 0;  // where the second step begins, in a plan of two; else 0

  // prefix[k] is a hash of the sizes of the step before k: plans that begin alike are told apart where they part.
  std::vector<std::uint64_t> prefix;

  // Of a merged plan; else empty.
  std::vector<Bytes> least;            // the smallest size that was seen
  std::vector<RequestNumber> end;      // where the block is due, size() if not before the end of the step
  std::vector<RequestNumber> landmark;  // where the block is due, if steps agree, else kNoRequest
  std::vector<std::uint64_t> sign;      // what was freed before the request in the step that brought it: bit i for a block
                                       // that had been asked for i + 1 requests before
  std::vector<std::pair<std::uint64_t, RequestNumber>> index;  // the last kSigns signs at each number; sorted
  std::vector<std::uint64_t> line;  // the same by number: which line of a loop's body asks
  struct Slot {
    std::uint64_t line;
    bool lasting;
    Bytes requested;
    RequestNumber number;

    auto key() const { return std::tie(line, lasting, requested, number); }
    bool operator<(const Slot& other) const { return key() < other.key(); }
  };
  std::vector<Slot> slots;  // of all that is planned; sorted

  static constexpr RequestNumber kYoung = 64;  // a sign has a bit for each age up to here
  static constexpr std::uint64_t kYoungest = 0xFF;
  static constexpr RequestNumber kSigns = 4;
  static constexpr RequestNumber kLasting = 64;
  static constexpr RequestNumber kLandmark = 256;  // more than what passes from one iteration of a loop to the next

  // One number for some signs, appended one by one.
  static std::uint64_t append(std::uint64_t signs, std::uint64_t sign) {
    const std::uint64_t mixed = (signs ^ sign) * 0x9E3779B97F4A7C15u;
    return mixed ^ (mixed >> 29);
  }

  std::size_t size() const { return offset.size(); }
  bool merged() const { return !least.empty(); }
  bool lasting(RequestNumber k) const { return end[k] == size() || end[k] - k > kLasting; }

  // Makes the plan a merged one. `at_same_place`: blocks that steps agree on where to free.
  void merge(std::vector<Bytes> smallest, const std::vector<std::uint8_t>& at_same_place,
             std::vector<std::uint64_t> signs) {
    least = std::move(smallest);
    sign = std::move(signs);
    end.assign(size(), static_cast<RequestNumber>(size()));
    landmark.assign(size(), kNoRequest);
    line.assign(size(), 0);
    index.clear();
    slots.clear();
    for (RequestNumber k = 0; k < size(); ++k) {
      for (std::uint32_t i = due_begin[k]; i < due_begin[k + 1]; ++i) {
        const RequestNumber slot = due[i];
        if (slot < k) end[slot] = k;
        if (slot < k && k - slot > kLandmark && at_same_place[slot] != 0) landmark[slot] = k;
      }
    }
    for (RequestNumber k = 0; k < size(); ++k) {
      for (RequestNumber i = k + 1 - std::min(k + 1, kSigns); i <= k; ++i) {
        line[k] = append(line[k], sign[i] & kYoungest);
      }
      if (k + 1 >= kSigns) index.emplace_back(line[k], k);
    }
    std::sort(index.begin(), index.end());
    for (RequestNumber k = 0; k < size(); ++k) {
      if (offset[k] != kUnplanned) slots.push_back({line[k], lasting(k), requested[k], k});
    }
    std::sort(slots.begin(), slots.end());
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
      const bool halfway = half != 0 && prefix.size() == half + std::size_t{1};
      if (halfway) prefix.back() = prefix.front();
      const std::uint64_t mixed = (prefix.back() ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15u;
      prefix.push_back(mixed ^ (mixed >> 29));
    }
  }
};

using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace stowplan::allocator
