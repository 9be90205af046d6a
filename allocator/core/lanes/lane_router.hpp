// Whose request: which lane of a step slot has the requests of a stream.
//
//     step slot 0    [ lane 0: stream 0 ]  [ lane 1: stream 7 ]    strangers: 9
//     step slot 1    [ lane 2: no stream yet ]
//
// A lane without a stream takes the first one that asks and has none. Streams that asked in vain are *strangers*. They
// have a lane from the step slot's next step on: a new one, or that of a stream that stayed away from its last kAway
// steps, or whose thread has ended.
//
// O(lanes of the step slot) for each call. Not synchronized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan.hpp"
#include "step_slots.hpp"

namespace stowplan::allocator {

class LaneRouter {
 public:
  static constexpr std::size_t kMostLanes = 8;  // of a step slot
  static constexpr std::uint32_t kAway = 8;

  std::size_t lanes() const { return lanes_.size(); }
  // The step slot's lanes, in their order.
  const std::vector<LaneNumber>& lanes_of(StepSlotNumber slot) const { return slots_[slot].lanes; }

  std::optional<Stream> stream_of(LaneNumber lane) const { return lanes_[lane].stream; }

  bool has_lanes(StepSlotNumber slot) const { return slot < slots_.size() && !slots_[slot].lanes.empty(); }

  // Adds a lane that has no stream yet to a step slot, which may be the next new one.
  LaneNumber add(StepSlotNumber slot);

  // The lane of a stream in the step slot's running step, its `step`th; none: it has asked in vain.
  std::optional<LaneNumber> find(StepSlotNumber slot, std::uint64_t step, Stream stream);

  // Whether welcome() would take a lane from a stream: then the device must be done with its memory first.
  bool takes_over(StepSlotNumber slot, std::uint64_t step);
  // Gives lanes to the streams that asked in vain; those of threads that have ended are without a stream.
  void welcome(StepSlotNumber slot, std::uint64_t step);

  // No step slot has two lanes of one stream.
  void assert_invariants() const;

 private:
  struct Lane {
    std::optional<Stream> stream;
    std::uint64_t last_step = 0;  // of the step slot, in which the stream asked
    bool has_ended = false;       // the stream's thread
  };
  struct Slot {
    std::vector<LaneNumber> lanes;
    std::vector<Stream> strangers;
  };
  // The lane of a stream that stayed away and that is not among `taken`.
  std::optional<LaneNumber> next_to_take_over(const Slot& slot, std::uint64_t step,
                                              const std::vector<LaneNumber>& taken) const;

  std::vector<Lane> lanes_;  // of all step slots
  std::vector<Slot> slots_;
};

}  // namespace stowplan::allocator
