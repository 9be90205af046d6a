#include "lanes.hpp"

namespace stowplan::allocator {

Lanes::Lanes(Bytes unit, Scope scope) : unit_(unit), slots_(scope) { add_lane(0); }

// ---------------------------------------------------------------------------------------------------- requests

// The named slow path of lane_of(): another runner or stream than the last one's.
Lanes::Whose Lanes::find_lane(Stream stream, ThreadId thread) {
  const Runner runner = slots_.runner_of(thread);
  const std::optional<StepSlotNumber> slot = slots_.of(runner);
  if (!slot) return {nullptr, slots_.any_running() ? Reason::thread : Reason::outside};
  if (slots_.is_interrupted(runner)) return {nullptr, Reason::interrupted};
  const std::optional<LaneNumber> number = router_.find(*slot, slots_.steps(*slot), stream);
  if (!number) return {nullptr, Reason::stream};
  last_ = lanes_[*number].get();
  last_runner_ = runner;
  last_stream_ = stream;
  return {last_};
}

void Lanes::pass_over(ThreadId thread) {
  ++shared_.counters.of(Reason::unnoted);
  const std::optional<StepSlotNumber> slot = slots_.of(slots_.runner_of(thread));
  if (!slot || !router_.has_lanes(*slot)) return;
  for (const LaneNumber number : lanes_of(*slot)) lane(number).pass_over();
}

// ------------------------------------------------------------------------------------------------------- steps

std::optional<StepSlotNumber> Lanes::enter(ThreadId thread) {
  has_entered_ = true;
  for (const StepSlotNumber slot : slots_.of_ended_threads()) end(slot);
  if (slots_.of(slots_.runner_of(thread))) return std::nullopt;
  const StepSlotNumber slot = slots_.take(thread);
  try {
    if (!router_.has_lanes(slot)) add_lane(slot);
  } catch (...) {  // there is no memory for it
    slots_.leave(slot);
    throw;
  }
  forget_last();
  return slot;
}

void Lanes::begin(const LaneStart& start) {
  Replay& replay = lane(start.lane);
  replay.begin_step(start.plan, start.others);
  replay.set_timestamps(start.timestamps);
  replay.set_guests(start.guests);
}

std::vector<LaneOutcome> Lanes::end(StepSlotNumber slot) {
  struct Leave {  // whatever happens
    Lanes& lanes;
    StepSlotNumber slot;
    ~Leave() { lanes.leave(slot); }
  } leave{*this, slot};
  std::vector<LaneOutcome> outcomes;
  outcomes.reserve(lanes_of(slot).size());
  for (const LaneNumber number : lanes_of(slot)) {
    if (lane(number).in_step()) outcomes.push_back({number, lane(number).end_step()});
  }
  return outcomes;
}

void Lanes::leave(StepSlotNumber slot) {
  forget_last();
  ++shared_.counters.steps;
  slots_.leave(slot);
}

std::vector<StepSlotNumber> Lanes::end_steps_of_others(ThreadId thread) {
  const std::vector<StepSlotNumber> theirs = slots_.of_others(thread);
  for (const StepSlotNumber slot : theirs) end(slot);
  return theirs;
}

void Lanes::set_interrupted(ThreadId thread, bool interrupted) {
  forget_last();
  slots_.set_interrupted(slots_.runner_of(thread), interrupted);
}

// ------------------------------------------------------------------------------------------------------- lanes

LaneNumber Lanes::add_lane(StepSlotNumber slot) {
  const LaneNumber number = router_.add(slot);
  make_lanes();
  return number;
}

void Lanes::welcome(StepSlotNumber slot) {
  router_.welcome(slot, slots_.steps(slot));
  make_lanes();
}

// Makes the lanes that the router has numbers for.
void Lanes::make_lanes() {
  while (lanes_.size() < router_.lanes()) {
    lanes_.push_back(std::make_unique<Replay>(unit_, shared_, static_cast<LaneNumber>(lanes_.size())));
  }
}

void Lanes::retire_idle_arenas() {
  for (const auto& lane : lanes_) lane->retire_idle_arena();
}

std::vector<std::uintptr_t> Lanes::take_dead_arenas() {
  std::vector<std::uintptr_t> dead;
  for (const auto& lane : lanes_) {
    const std::vector<std::uintptr_t> own = lane->take_dead_arenas();
    dead.insert(dead.end(), own.begin(), own.end());
  }
  return dead;
}

// --------------------------------------------------------------------------------------------------- diagnosis

Situation Lanes::situation(ThreadId thread) const {
  Situation now;
  const Runner runner = slots_.runner_of(thread);
  now.step_slot = slots_.nearest(runner);
  now.in_step = slots_.is_run_by(now.step_slot, runner);
  now.step = slots_.steps(now.step_slot) + (slots_.is_free(now.step_slot) ? 1 : 0);
  for (const LaneNumber number : lanes_of(now.step_slot)) {
    now.requests += lanes_[number]->requests();
    now.planned_requests += lanes_[number]->planned_requests();
  }
  now.live_bytes = counters().live_bytes;
  now.upstream_bytes = counters().upstream_bytes;
  now.arena_bytes = counters().arena_bytes;
  for (BlockId id = 0; id < shared_.blocks.extent(); ++id) {
    const Block& block = shared_.blocks[id];
    if (block.where == Where::nowhere || block.is_unanswered()) continue;
    now.offer(block.lane->describe(block));
  }
  return now;
}

void Lanes::refuse(BlockId id, ThreadId thread) {
  const Block& block = shared_.blocks[id];
  ++failure_.number;
  failure_.asked = block.lane->describe(block);
  failure_.found = situation(thread);
  block.lane->refuse(id);
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
  for (const auto& lane : lanes_) awaited += lane->awaited().size();
  require(live.size() + awaited == shared_.blocks.live(), "the table counts its live blocks");
  std::vector<Range> ranges;
  Bytes bytes = 0;
  Bytes upstream = 0;
  for (const BlockId id : live) {
    const Block& block = shared_.blocks[id];
    if (block.is_unanswered()) continue;
    if (!block.held) bytes += block.size;
    if (block.where == Where::upstream) upstream += block.size;
    ranges.push_back(range_of(id));
  }
  require(bytes == counters().live_bytes && upstream == counters().upstream_bytes, "bytes are conserved");
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    require(ranges[i - 1].end <= ranges[i].begin, "live blocks are disjoint");
  }
  for (const auto& lane : lanes_) lane->assert_invariants();
  router_.assert_invariants();
}

}  // namespace stowplan::allocator
