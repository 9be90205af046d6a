#include "lanes.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace stowplan::allocator {

Lanes::Lanes(Bytes unit, Scope scope) : unit_(unit), scope_(scope), step_slots_(1) { add_lane(0); }

// ---------------------------------------------------------------------------------------------------- requests

// The named slow path of request(): another thread or stream than the last one's.
Grant Lanes::find_lane_and_request(Bytes size, Stream stream, ThreadId thread) {
  const Runner runner = this->runner(thread, stream);
  const std::optional<StepSlotNumber> number = step_slot_of_runner(runner);
  Replay& any = lanes_.front()->replay;
  if (!number) return any.pass_upstream(size, stream, steps_running_ == 0 ? Reason::outside : Reason::thread);
  StepSlot& step_slot = step_slots_[*number];
  if (is_interrupted(runner)) return any.pass_upstream(size, stream, Reason::interrupted);
  const Source source = source_of(step_slot, stream, thread);
  Lane* lane = lane_of(step_slot, source);
  if (lane == nullptr) {
    std::vector<Source>& strangers = step_slot.strangers;
    const bool known = std::find(strangers.begin(), strangers.end(), source) != strangers.end();
    if (!known && strangers.size() < kMostLanes) strangers.push_back(source);
    return any.pass_upstream(size, stream, Reason::stream);
  }
  lane->last_step = step_slot.steps;
  last_ = &lane->replay;
  last_order_ = scope_ == Scope::process && !step_slot.is_split ? &step_slot.order : nullptr;
  last_thread_ = thread;
  last_stream_ = stream;
  if (last_order_ != nullptr) last_order_->note(thread, size, stream);
  return last_->request(size, stream);
}

bool Lanes::is_first_lane(StepSlotNumber number, Stream stream, ThreadId thread) const {
  const StepSlot& step_slot = step_slots_[number];
  const std::optional<Source>& first = lanes_[step_slot.lanes.front()]->source;
  return !first || first == source_of(step_slot, stream, thread);
}

Lanes::Lane* Lanes::lane_of(StepSlot& step_slot, const Source& source) {
  for (const LaneNumber number : step_slot.lanes) {
    if (lanes_[number]->source == source) return lanes_[number].get();
  }
  for (const LaneNumber number : step_slot.lanes) {
    Lane* lane = lanes_[number].get();
    if (lane->source) continue;
    lane->source = source;
    return lane;
  }
  return nullptr;
}

// Splits a step slot whose step, which has ended, differs from an earlier one only in how threads took turns.
void Lanes::look_at_order(StepSlot& step_slot) {
  if (scope_ != Scope::process || step_slot.is_split) return;
  const ThreadId first = step_slot.order.first();
  if (!step_slot.order.end_step()) return;
  step_slot.is_split = true;
  step_slot.strangers.clear();
  for (const LaneNumber number : step_slot.lanes) {
    std::optional<Source>& source = lanes_[number]->source;
    if (source) source->thread = first;
  }
}

// ------------------------------------------------------------------------------------------------------ step slots

std::optional<StepSlotNumber> Lanes::step_slot_of_runner(Runner runner) const {
  for (std::size_t i = 0; i < step_slots_.size(); ++i) {
    if (step_slots_[i].runner == runner) return static_cast<StepSlotNumber>(i);
  }
  return std::nullopt;
}

std::optional<StepSlotNumber> Lanes::take_step_slot(Runner runner, ThreadId thread) {
  if (step_slot_of_runner(runner)) return std::nullopt;
  const auto had = std::find_if(step_slots_.begin(), step_slots_.end(), [=](const StepSlot& step_slot) {
    return step_slot.runner == 0 && step_slot.last_runner == runner;
  });
  auto at = had != step_slots_.end()
                ? had
                : std::find_if(step_slots_.begin(), step_slots_.end(), [](const StepSlot& b) { return b.runner == 0; });
  if (at == step_slots_.end()) {
    step_slots_.emplace_back();
    add_lane(static_cast<StepSlotNumber>(step_slots_.size() - 1));
    at = std::prev(step_slots_.end());
  }
  interrupted_.erase(std::remove(interrupted_.begin(), interrupted_.end(), runner),
                     interrupted_.end());  // a thread that ended while it was: its number has come again
  forget_last();
  at->runner = at->last_runner = runner;
  at->entered_by = thread;
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
  look_at_order(step_slots_[number]);
  ++step_slots_[number].steps;
  ++shared_.counters.steps;
  forget_last();  // a lane notes in each step that its stream asked
}

void Lanes::leave(StepSlotNumber number) {
  forget_last();
  look_at_order(step_slots_[number]);
  ++shared_.counters.steps;
  step_slots_[number].runner = 0;
  --steps_running_;
}

void Lanes::set_interrupted(ThreadId thread, bool interrupted, Stream stream) {
  forget_last();
  const Runner runner = this->runner(thread, stream);
  const auto at = std::find(interrupted_.begin(), interrupted_.end(), runner);
  if (interrupted && at == interrupted_.end()) interrupted_.push_back(runner);
  if (!interrupted && at != interrupted_.end()) interrupted_.erase(at);
}

std::vector<StepSlotNumber> Lanes::step_slots_of_others(ThreadId thread) const {
  std::vector<StepSlotNumber> theirs;
  for (std::size_t i = 0; i < step_slots_.size(); ++i) {
    if (step_slots_[i].runner != 0 && step_slots_[i].entered_by != thread)
      theirs.push_back(static_cast<StepSlotNumber>(i));
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
    const bool away = lane.source && lane.last_step + kAway < step_slot.steps;
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
  for (const Source& source : step_slot.strangers) {
    LaneNumber at = next_to_take_over(step_slot, taken);
    if (at == kNoLane) {
      if (step_slot.lanes.size() >= kMostLanes) break;
      at = add_lane(number);
    }
    taken.push_back(at);
    lanes_[at]->source = source;
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

// The step slot of the runner's step, or of its last one, or the first.
StepSlotNumber Lanes::step_slot_for(Runner runner) const {
  if (const auto running = step_slot_of_runner(runner)) return *running;
  for (std::size_t i = 0; i < step_slots_.size(); ++i) {
    if (step_slots_[i].last_runner == runner) return static_cast<StepSlotNumber>(i);
  }
  return 0;
}

Situation Lanes::situation(ThreadId thread, Stream stream) const {
  Situation now;
  const Runner runner = this->runner(thread, stream);
  now.step_slot = step_slot_for(runner);
  const StepSlot& step_slot = step_slots_[now.step_slot];
  now.in_step = step_slot.runner == runner;
  now.step = step_slot.steps + (step_slot.runner == 0 ? 1 : 0);
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
  failure_.found = situation(thread, block.stream);
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
        const auto& a = lanes_[step_slot.lanes[i]]->source;
        require(!a || a != lanes_[step_slot.lanes[j]]->source, "a source has one lane of a step slot");
      }
    }
  }
}

}  // namespace stowplan::allocator
