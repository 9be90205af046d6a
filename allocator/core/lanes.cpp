#include "lanes.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace stowplan::allocator {

Lanes::Lanes(Bytes unit) : unit_(unit), berths_(1) { add_lane(0); }

// ---------------------------------------------------------------------------------------------------- requests

// The named slow path of request(): another thread or stream than the last one's.
Grant Lanes::find_lane_and_request(Bytes size, Stream stream, ThreadId thread) {
  const std::optional<BerthNumber> number = berth_of(thread);
  Replay& any = lanes_.front()->replay;
  if (!number) return any.pass_upstream(size, stream, steps_running_ == 0 ? Reason::outside : Reason::thread);
  Berth& berth = berths_[*number];
  if (is_interrupted(thread)) return any.pass_upstream(size, stream, Reason::interrupted);
  Lane* lane = lane_of(berth, stream);
  if (lane == nullptr) {
    std::vector<Stream>& strangers = berth.strangers;
    const bool known = std::find(strangers.begin(), strangers.end(), stream) != strangers.end();
    if (!known && strangers.size() < kMostLanes) strangers.push_back(stream);
    return any.pass_upstream(size, stream, Reason::stream);
  }
  lane->last_step = berth.steps;
  last_ = &lane->replay;
  last_thread_ = thread;
  last_stream_ = stream;
  return last_->request(size, stream);
}

bool Lanes::is_first_lane(BerthNumber berth, Stream stream) const {
  const std::optional<Stream>& first = lanes_[berths_[berth].lanes.front()]->stream;
  return !first || first == stream;
}

Lanes::Lane* Lanes::lane_of(Berth& berth, Stream stream) {
  for (const LaneNumber number : berth.lanes) {
    if (lanes_[number]->stream == stream) return lanes_[number].get();
  }
  for (const LaneNumber number : berth.lanes) {
    Lane* lane = lanes_[number].get();
    if (lane->stream) continue;
    lane->stream = stream;
    return lane;
  }
  return nullptr;
}

// ------------------------------------------------------------------------------------------------------ berths

std::optional<BerthNumber> Lanes::berth_of(ThreadId thread) const {
  for (std::size_t i = 0; i < berths_.size(); ++i) {
    if (berths_[i].thread == thread) return static_cast<BerthNumber>(i);
  }
  return std::nullopt;
}

std::optional<BerthNumber> Lanes::enter(ThreadId thread) {
  if (berth_of(thread)) return std::nullopt;
  const auto had = std::find_if(berths_.begin(), berths_.end(), [=](const Berth& berth) {
    return berth.thread == 0 && berth.last_thread == thread;
  });
  auto at = had != berths_.end()
                ? had
                : std::find_if(berths_.begin(), berths_.end(), [](const Berth& b) { return b.thread == 0; });
  if (at == berths_.end()) {
    berths_.emplace_back();
    add_lane(static_cast<BerthNumber>(berths_.size() - 1));
    at = std::prev(berths_.end());
  }
  set_interrupted(thread, false);  // a thread that ended while it was: its number has come again
  at->thread = at->last_thread = thread;
  ++at->steps;
  ++steps_running_;
  return static_cast<BerthNumber>(at - berths_.begin());
}

void Lanes::begin(std::vector<LaneStart> starts, bool may_wait) {
  for (LaneStart& start : starts) {
    Replay& replay = lane(start.lane);
    replay.set_may_wait(may_wait);
    replay.begin_step(std::move(start.plan), std::move(start.others));
    replay.set_timestamps(start.timestamps);
  }
}

std::vector<LaneOutcome> Lanes::end(BerthNumber berth) {
  struct Leave {  // whatever happens
    Lanes& lanes;
    BerthNumber berth;
    ~Leave() { lanes.leave(berth); }
  } leave{*this, berth};
  std::vector<LaneOutcome> outcomes;
  outcomes.reserve(lanes_of(berth).size());
  for (const LaneNumber number : lanes_of(berth)) {
    if (lane(number).in_step()) outcomes.push_back({number, lane(number).end_step()});
  }
  return outcomes;
}

void Lanes::count_step(BerthNumber number) {
  ++berths_[number].steps;
  ++shared_.counters.steps;
  forget_last();  // a lane notes in each step that its stream asked
}

void Lanes::leave(BerthNumber number) {
  forget_last();
  ++shared_.counters.steps;
  berths_[number].thread = 0;
  --steps_running_;
}

void Lanes::set_interrupted(ThreadId thread, bool interrupted) {
  forget_last();
  const auto at = std::find(interrupted_.begin(), interrupted_.end(), thread);
  if (interrupted && at == interrupted_.end()) interrupted_.push_back(thread);
  if (!interrupted && at != interrupted_.end()) interrupted_.erase(at);
}

std::vector<BerthNumber> Lanes::berths_of_others(ThreadId thread) const {
  std::vector<BerthNumber> theirs;
  for (std::size_t i = 0; i < berths_.size(); ++i) {
    if (berths_[i].thread != 0 && berths_[i].thread != thread) theirs.push_back(static_cast<BerthNumber>(i));
  }
  return theirs;
}

// ------------------------------------------------------------------------------------------------------- lanes

LaneNumber Lanes::add_lane(BerthNumber berth) {
  if (lanes_.size() == kNoLane) throw std::length_error("more steps at once than there are numbers for");
  const auto number = static_cast<LaneNumber>(lanes_.size());
  lanes_.push_back(std::make_unique<Lane>(unit_, shared_, number));
  berths_[berth].lanes.push_back(number);
  return number;
}

// The lane of a stream that stayed away, or kNoLane.
LaneNumber Lanes::next_to_take_over(const Berth& berth, const std::vector<LaneNumber>& taken) const {
  for (const LaneNumber number : berth.lanes) {
    const Lane& lane = *lanes_[number];
    const bool away = lane.stream && lane.last_step + kAway < berth.steps;
    if (away && std::find(taken.begin(), taken.end(), number) == taken.end()) return number;
  }
  return kNoLane;
}

bool Lanes::takes_over(BerthNumber number) const {
  const Berth& berth = berths_[number];
  return !berth.strangers.empty() && next_to_take_over(berth, {}) != kNoLane;
}

void Lanes::welcome(BerthNumber number) {
  Berth& berth = berths_[number];
  std::vector<LaneNumber> taken;
  for (const Stream stream : berth.strangers) {
    LaneNumber at = next_to_take_over(berth, taken);
    if (at == kNoLane) {
      if (berth.lanes.size() >= kMostLanes) break;
      at = add_lane(number);
    }
    taken.push_back(at);
    lanes_[at]->stream = stream;
    lanes_[at]->last_step = berth.steps;
  }
  berth.strangers.clear();
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

// The berth of the thread's step, or of its last one, or the first.
BerthNumber Lanes::berth_for(ThreadId thread) const {
  if (const auto running = berth_of(thread)) return *running;
  for (std::size_t i = 0; i < berths_.size(); ++i) {
    if (berths_[i].last_thread == thread) return static_cast<BerthNumber>(i);
  }
  return 0;
}

Situation Lanes::situation(ThreadId thread) const {
  Situation now;
  now.berth = berth_for(thread);
  const Berth& berth = berths_[now.berth];
  now.in_step = berth.thread == thread;
  now.step = berth.steps + (berth.thread == 0 ? 1 : 0);
  for (const LaneNumber number : berth.lanes) {
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
  for (const Berth& berth : berths_) {
    for (std::size_t i = 0; i < berth.lanes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto& a = lanes_[berth.lanes[i]]->stream;
        require(!a || a != lanes_[berth.lanes[j]]->stream, "a stream has one lane of a berth");
      }
    }
  }
}

}  // namespace stowplan::allocator
