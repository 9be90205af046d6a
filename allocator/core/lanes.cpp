#include "lanes.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace stowplan::allocator {

Lanes::Lanes(Bytes unit) : unit_(unit), step_slots_(1) { add_lane(0); }

// ---------------------------------------------------------------------------------------------------- requests

// The named slow path of request(): another thread or stream than the last one's.
Grant Lanes::find_lane_and_request(Bytes size, Stream stream, ThreadId thread) {
  const std::optional<StepSlotNumber> number = step_slot_of(thread);
  Replay& any = lanes_.front()->replay;
  if (!number) return any.pass_upstream(size, stream, steps_running_ == 0 ? Reason::outside : Reason::thread);
  StepSlot& step_slot = step_slots_[*number];
  if (is_interrupted(thread)) return any.pass_upstream(size, stream, Reason::interrupted);
  Lane* lane = lane_of(step_slot, stream);
  if (lane == nullptr) {
    std::vector<Stream>& strangers = step_slot.strangers;
    const bool known = std::find(strangers.begin(), strangers.end(), stream) != strangers.end();
    if (!known && strangers.size() < kMostLanes) strangers.push_back(stream);
    return any.pass_upstream(size, stream, Reason::stream);
  }
  lane->last_step = step_slot.steps;
  last_ = &lane->replay;
  last_thread_ = thread;
  last_stream_ = stream;
  return last_->request(size, stream);
}

bool Lanes::is_first_lane(StepSlotNumber step_slot, Stream stream) const {
  const std::optional<Stream>& first = lanes_[step_slots_[step_slot].lanes.front()]->stream;
  return !first || first == stream;
}

Lanes::Lane* Lanes::lane_of(StepSlot& step_slot, Stream stream) {
  for (const LaneNumber number : step_slot.lanes) {
    if (lanes_[number]->stream == stream) return lanes_[number].get();
  }
  for (const LaneNumber number : step_slot.lanes) {
    Lane* lane = lanes_[number].get();
    if (lane->stream) continue;
    lane->stream = stream;
    return lane;
  }
  return nullptr;
}

// ------------------------------------------------------------------------------------------------------ step slots

std::optional<StepSlotNumber> Lanes::step_slot_of(ThreadId thread) const {
  for (std::size_t i = 0; i < step_slots_.size(); ++i) {
    if (step_slots_[i].thread == thread) return static_cast<StepSlotNumber>(i);
  }
  return std::nullopt;
}

std::optional<StepSlotNumber> Lanes::enter(ThreadId thread) {
  if (step_slot_of(thread)) return std::nullopt;
  const auto had = std::find_if(step_slots_.begin(), step_slots_.end(), [=](const StepSlot& step_slot) {
    return step_slot.thread == 0 && step_slot.last_thread == thread;
  });
  auto at = had != step_slots_.end()
                ? had
                : std::find_if(step_slots_.begin(), step_slots_.end(), [](const StepSlot& b) { return b.thread == 0; });
  if (at == step_slots_.end()) {
    step_slots_.emplace_back();
    add_lane(static_cast<StepSlotNumber>(step_slots_.size() - 1));
    at = std::prev(step_slots_.end());
  }
  set_interrupted(thread, false);  // a thread that ended while it was: its number has come again
  at->thread = at->last_thread = thread;
  ++at->steps;
  ++steps_running_;
  return static_cast<StepSlotNumber>(at - step_slots_.begin());
}

void Lanes::begin(std::vector<LaneStart> starts, bool may_wait) {
  for (LaneStart& start : starts) {
    Replay& replay = lane(start.lane);
    replay.set_may_wait(may_wait);
    replay.begin_step(std::move(start.plan), std::move(start.others));
    replay.set_timestamps(start.timestamps);
    replay.set_guests(start.guests);
  }
}

std::vector<LaneOutcome> Lanes::end(StepSlotNumber step_slot) {
  struct Leave {  // whatever happens
    Lanes& lanes;
    StepSlotNumber step_slot;
    ~Leave() { lanes.leave(step_slot); }
  } leave{*this, step_slot};
  std::vector<LaneOutcome> outcomes;
  outcomes.reserve(lanes_of(step_slot).size());
  for (const LaneNumber number : lanes_of(step_slot)) {
    if (lane(number).in_step()) outcomes.push_back({number, lane(number).end_step()});
  }
  return outcomes;
}

void Lanes::count_step(StepSlotNumber number) {
  ++step_slots_[number].steps;
  ++shared_.counters.steps;
  forget_last();  // a lane notes in each step that its stream asked
}

void Lanes::leave(StepSlotNumber number) {
  forget_last();
  ++shared_.counters.steps;
  step_slots_[number].thread = 0;
  --steps_running_;
}

void Lanes::set_interrupted(ThreadId thread, bool interrupted) {
  forget_last();
  const auto at = std::find(interrupted_.begin(), interrupted_.end(), thread);
  if (interrupted && at == interrupted_.end()) interrupted_.push_back(thread);
  if (!interrupted && at != interrupted_.end()) interrupted_.erase(at);
}

std::vector<StepSlotNumber> Lanes::step_slots_of_others(ThreadId thread) const {
  std::vector<StepSlotNumber> theirs;
  for (std::size_t i = 0; i < step_slots_.size(); ++i) {
    if (step_slots_[i].thread != 0 && step_slots_[i].thread != thread) theirs.push_back(static_cast<StepSlotNumber>(i));
  }
  return theirs;
}

// ------------------------------------------------------------------------------------------------------- lanes

LaneNumber Lanes::add_lane(StepSlotNumber step_slot) {
  if (lanes_.size() == kNoLane) throw std::length_error("more steps at once than there are numbers for");
  const auto number = static_cast<LaneNumber>(lanes_.size());
  lanes_.push_back(std::make_unique<Lane>(unit_, shared_, number));
  step_slots_[step_slot].lanes.push_back(number);
  return number;
}

// The lane of a stream that stayed away, or kNoLane.
LaneNumber Lanes::next_to_take_over(const StepSlot& step_slot, const std::vector<LaneNumber>& taken) const {
  for (const LaneNumber number : step_slot.lanes) {
    const Lane& lane = *lanes_[number];
    const bool away = lane.stream && lane.last_step + kAway < step_slot.steps;
    if (away && std::find(taken.begin(), taken.end(), number) == taken.end()) return number;
  }
  return kNoLane;
}

bool Lanes::takes_over(StepSlotNumber number) const {
  const StepSlot& step_slot = step_slots_[number];
  return !step_slot.strangers.empty() && next_to_take_over(step_slot, {}) != kNoLane;
}

void Lanes::welcome(StepSlotNumber number) {
  StepSlot& step_slot = step_slots_[number];
  std::vector<LaneNumber> taken;
  for (const Stream stream : step_slot.strangers) {
    LaneNumber at = next_to_take_over(step_slot, taken);
    if (at == kNoLane) {
      if (step_slot.lanes.size() >= kMostLanes) break;
      at = add_lane(number);
    }
    taken.push_back(at);
    lanes_[at]->stream = stream;
    lanes_[at]->last_step = step_slot.steps;
  }
  step_slot.strangers.clear();
}

std::vector<std::uintptr_t> Lanes::take_dead_arenas() {
  std::vector<std::uintptr_t> dead;
  for (const auto& lane : lanes_) {
    const std::vector<std::uintptr_t> own = lane->replay.take_dead_arenas();
    dead.insert(dead.end(), own.begin(), own.end());
  }
  return dead;
}

void Lanes::reset_peaks() { shared_.counters.reset_peaks(); }

// --------------------------------------------------------------------------------------------------- diagnosis

// The step slot of the thread's step, or of its last one, or the first.
StepSlotNumber Lanes::step_slot_for(ThreadId thread) const {
  if (const auto running = step_slot_of(thread)) return *running;
  for (std::size_t i = 0; i < step_slots_.size(); ++i) {
    if (step_slots_[i].last_thread == thread) return static_cast<StepSlotNumber>(i);
  }
  return 0;
}

Situation Lanes::situation(ThreadId thread) const {
  Situation now;
  now.step_slot = step_slot_for(thread);
  const StepSlot& step_slot = step_slots_[now.step_slot];
  now.in_step = step_slot.thread == thread;
  now.step = step_slot.steps + (step_slot.thread == 0 ? 1 : 0);
  for (const LaneNumber number : step_slot.lanes) {
    now.requests += lanes_[number]->replay.requests();
    now.planned_requests += lanes_[number]->replay.planned_requests();
  }
  now.live_bytes = counters().live_bytes;
  now.upstream_bytes = counters().upstream_bytes;
  now.arena_bytes = counters().arena_bytes;
  for (BlockId id = 0; id < shared_.blocks.extent(); ++id) {
    const Block& block = shared_.blocks[id];
    const bool unanswered = block.where == Where::upstream && block.address == 0;
    if (block.where == Where::nowhere || unanswered) continue;
    now.largest.offer(block.lane->describe(block));
  }
  return now;
}

void Lanes::note_failure(BlockId id, ThreadId thread) {
  const Block& block = shared_.blocks[id];
  ++failure_.number;
  failure_.asked = block.lane->describe(block);
  failure_.found = situation(thread);
  failure_.found.live_bytes -= block.size;
  failure_.found.upstream_bytes -= block.size;
}

// -------------------------------------------------------------------------------------------------- invariants

std::vector<BlockId> Lanes::live_blocks() const {
  std::vector<BlockId> live;
  for (BlockId id = 0; id < shared_.blocks.extent(); ++id) {
    if (shared_.blocks[id].where != Where::nowhere) live.push_back(id);
  }
  return live;
}

void Lanes::assert_invariants() const {
  const std::vector<BlockId> live = live_blocks();
  std::size_t awaited = 0;
  for (const auto& lane : lanes_) awaited += lane->replay.awaited().size();
  require(live.size() + awaited == shared_.blocks.live(), "the table counts its live blocks");
  std::vector<Range> ranges;
  Bytes bytes = 0;
  Bytes upstream = 0;
  for (const BlockId id : live) {
    const Block& block = shared_.blocks[id];
    if (!block.held) bytes += block.size;
    if (block.where == Where::upstream) upstream += block.size;
    if (block.address != 0) ranges.push_back(range_of(id));  // else upstream has not answered yet
  }
  require(bytes == counters().live_bytes && upstream == counters().upstream_bytes, "bytes are conserved");
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    require(ranges[i - 1].end <= ranges[i].begin, "live blocks are disjoint");
  }
  for (const auto& lane : lanes_) lane->replay.assert_invariants();
  for (const StepSlot& step_slot : step_slots_) {
    for (std::size_t i = 0; i < step_slot.lanes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto& a = lanes_[step_slot.lanes[i]]->stream;
        require(!a || a != lanes_[step_slot.lanes[j]]->stream, "a stream has one lane of a step slot");
      }
    }
  }
}

}  // namespace stowplan::allocator
