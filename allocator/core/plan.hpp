// A plan as the replay core reads it: what to do at request number k.
//
//   request   0     1     2     3     4   (end)
//   offset   512    0   none   256   512           none: an escaped block, always served upstream
//   due at          {}    {1}   {}   {0}  {3}      blocks whose planned free lies between request k-1 and request k
//
// A wrapped block is due at a number not above its own, in the following step.
//
// A plan may be of several steps, which take turns on it: where results of a step outlive their successors, each is
// kept in one of several places. Each step is then `turn` requests long, and begins where the one before it ended.
//
// A *merged* plan stands for steps that differ: its requests are those of all of them, with their largest sizes, and
// each step asks for some of them. What it knows beside that helps to find out where a step is (step_locator.hpp).
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
  std::vector<Bytes> offset;             // in the arena, or kUnplanned
  std::vector<Bytes> requested;          // bytes asked for in the profiled step
  std::vector<Bytes> capacity;           // bytes reserved: `requested`, rounded up
  std::vector<Stream> stream;            // on which the block is used
  std::vector<std::uint32_t> due_begin;  // size() + 2 entries: due at k are due[due_begin[k]] .. due[due_begin[k + 1]]
  std::vector<RequestNumber> due;
  Bytes arena_bytes = 0;
  std::uint64_t tag = 0;   // the owner's name for it
  RequestNumber turn = 0;  // requests of a step, in a plan of several, of which they are a whole part; else 0

  // prefix[k] is a hash of the sizes of the step before k: plans that begin alike are told apart where they part. That
  // of a whole step is in `whole`, by turn.
  std::vector<std::uint64_t> prefix;
  std::vector<std::uint64_t> whole;

  // Of a merged plan; else empty.
  std::vector<Bytes> least;             // the smallest size that was seen
  std::vector<RequestNumber> end;       // where the block is due, size() if not before the end of the step
  std::vector<RequestNumber> landmark;  // where the block is due, if steps agree, else kNoRequest
  std::vector<std::uint64_t> sign;      // what was freed before the request in the step that brought it: bit i for a
                                        // block that had been asked for i + 1 requests before
  std::vector<std::pair<std::uint64_t, RequestNumber>> index;  // the last kSigns signs at each number; sorted
  // Slots of the same line of a loop's body (the same signs) that last alike, side by side, the smaller first.
  struct Slot {
    Bytes requested;
    Bytes offset;
  };
  std::vector<Slot> slots;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> alike;  // by number: begin and end of those like this one

  // Which requests need a part of the arena, as for `due_begin` and `due`: there are kParts, of `part_bytes` each.
  std::vector<std::uint32_t> users_begin;
  std::vector<RequestNumber> users;
  Bytes part_bytes = 0;

  static constexpr Bytes kParts = 256;
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
  RequestNumber step_size() const { return turn != 0 ? turn : static_cast<RequestNumber>(size()); }
  // Of a step that began at a request, before another.
  std::uint64_t prefix_of(RequestNumber began, RequestNumber k) const {
    return turn != 0 && k == began + turn ? whole[began / turn] : prefix[k];
  }
  bool merged() const { return !least.empty(); }
  bool lasting(RequestNumber k) const { return end[k] == size() || end[k] - k > kLasting; }

  // Blocks that are freed in the following step.
  std::vector<bool> wraps;

  // Computes the columns that follow from the others.
  void derive();

  // Makes the plan a merged one. `at_same_place`: blocks that steps agree on where to free.
  void merge(std::vector<Bytes> smallest, const std::vector<std::uint32_t>& at_same_place,
             const std::vector<std::int64_t>& signs);

  // Whether one of the requests from `from` on and before `until` needs what lies between two offsets.
  bool needs(Bytes low, Bytes high, RequestNumber from, RequestNumber until) const;
  // The same of a merged plan, faster if there are many requests between.
  bool needs_by_part(Bytes low, Bytes high, RequestNumber from, RequestNumber until) const;

  // The slots of the same line and as lasting as that of `k`, from the smallest on that takes `bytes`: begin and end.
  std::pair<const Slot*, const Slot*> slots_like(RequestNumber k, Bytes bytes) const {
    const Slot* end = slots.data() + alike[k].second;
    const auto is_smaller = [](const Slot& slot, Bytes size) { return slot.requested < size; };
    return {std::lower_bound(slots.data() + alike[k].first, end, bytes, is_smaller), end};
  }

 private:
  bool is_within(RequestNumber k, Bytes low, Bytes high) const {
    return offset[k] != kUnplanned && offset[k] < high && low < offset[k] + capacity[k];
  }
  void sort_slots(const std::vector<std::uint64_t>& line);
  void find_users();
};

using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace stowplan::allocator
