#include "lane_router.hpp"

#include <algorithm>
#include <stdexcept>

#include "invariants.hpp"
#include "thread_stream.hpp"

namespace stowplan::allocator {

LaneNumber LaneRouter::add(StepSlotNumber slot) {
  if (lanes_.size() == UINT16_MAX) throw std::length_error("more steps at once than there are numbers for");
  if (slots_.size() <= slot) slots_.resize(slot + std::size_t{1});
  const auto number = static_cast<LaneNumber>(lanes_.size());
  lanes_.emplace_back();
  slots_[slot].lanes.push_back(number);
  return number;
}

std::optional<LaneNumber> LaneRouter::find(StepSlotNumber number, std::uint64_t step, Stream stream) {
  Slot& slot = slots_[number];
  const auto lane_of = [&](const std::optional<Stream>& whose) {
    return std::find_if(slot.lanes.begin(), slot.lanes.end(), [&](LaneNumber n) { return lanes_[n].stream == whose; });
  };
  auto at = lane_of(stream);
  if (at == slot.lanes.end()) at = lane_of(std::nullopt);
  if (at == slot.lanes.end()) {
    const bool is_new = std::count(slot.strangers.begin(), slot.strangers.end(), stream) == 0;
    if (is_new && slot.strangers.size() < kMostLanes) slot.strangers.push_back(stream);
    return std::nullopt;
  }
  lanes_[*at] = {stream, step, false};
  return *at;
}

std::optional<LaneNumber> LaneRouter::next_to_take_over(const Slot& slot, std::uint64_t step,
                                                        const std::vector<LaneNumber>& taken) const {
  for (const LaneNumber number : slot.lanes) {
    const Lane& lane = lanes_[number];
    const bool is_free = std::count(taken.begin(), taken.end(), number) == 0;
    if (is_free && (!lane.stream || lane.last_step + kAway < step)) return number;
  }
  return std::nullopt;
}

bool LaneRouter::takes_over(StepSlotNumber number, std::uint64_t step) {
  const Slot& slot = slots_[number];
  bool any_ended = false;
  for (const LaneNumber lane : slot.lanes) {
    const std::optional<Stream>& stream = lanes_[lane].stream;
    lanes_[lane].has_ended = stream && ThreadStream::has_ended(*stream);
    any_ended |= lanes_[lane].has_ended;
  }
  return any_ended || (!slot.strangers.empty() && next_to_take_over(slot, step, {}));
}

void LaneRouter::welcome(StepSlotNumber number, std::uint64_t step) {
  Slot& slot = slots_[number];
  for (const LaneNumber lane : slot.lanes) {
    if (lanes_[lane].has_ended) lanes_[lane] = {};
  }
  std::vector<LaneNumber> taken;
  for (const Stream stream : slot.strangers) {
    auto lane = next_to_take_over(slot, step, taken);
    if (!lane && slot.lanes.size() >= kMostLanes) break;
    taken.push_back(lane ? *lane : add(number));
    lanes_[taken.back()] = {stream, step, false};
  }
  slot.strangers.clear();
}

void LaneRouter::assert_invariants() const {
  for (const Slot& slot : slots_) {
    for (std::size_t i = 0; i < slot.lanes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto& stream = lanes_[slot.lanes[i]].stream;
        require(!stream || stream != lanes_[slot.lanes[j]].stream, "a stream has one lane of a step slot");
      }
    }
  }
}

}  // namespace stowplan::allocator
