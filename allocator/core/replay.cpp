#include "replay.hpp"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace stowplan::allocator {

namespace {

#ifdef STOWPLAN_DEBUG
constexpr bool kDebug = true;
#else
constexpr bool kDebug = false;
#endif

void require(bool condition, const char* invariant) {
  if (condition) return;
  std::fprintf(stderr, "stowplan: invariant broken: %s\n", invariant);
  std::abort();
}

std::uint64_t& count(Counters& counters, Reason reason) {
  return counters.requests[static_cast<std::size_t>(reason)];
}

}  // namespace

Replay::Replay(Bytes unit) : arenas_(1), unit_(unit) {}

// ---------------------------------------------------------------------------------------------------- requests

Grant Replay::request(Bytes size, Stream stream, ThreadId thread) {
  Block block;
  block.size = size;
  block.stream = stream;
  counters_.live_bytes += size;
  located_ = kNoRequest;
  Grant grant;
  if (!recorder_.in_step()) {
    grant = send_upstream(block, Reason::outside);
  } else if (thread != owner_) {
    grant = send_upstream(block, Reason::thread);
  } else if (interrupted_) {
    grant = send_upstream(block, Reason::interrupted);
  } else {
    block.birth = recorder_.allocate(size, stream);
    if (plan_ == nullptr) {
      grant = invite(block, Reason::no_plan);
    } else if (const RequestNumber k = align(size); block.located = located_, k == kNoRequest) {
      clean_ = false;
      if (located_ == kNoRequest) {
        ++unknown_;
        ++lost_in_a_row_;
      }
      grant = invite(block, Reason::mismatch);
    } else {
      lost_in_a_row_ = 0;
      grant = serve_planned(k, block);
    }
  }
  note_peaks();
  if (kDebug) assert_invariants();
  return grant;
}

Grant Replay::serve_planned(RequestNumber k, Block& block) {
  const Bytes offset = plan_->offset[k];
  if (arena_stream_ && block.stream != *arena_stream_) {
    clean_ &= offset == kUnplanned;
    return send_upstream(block, Reason::stream);
  }
  if (offset == kUnplanned) return send_upstream(block, Reason::escaped);
  arena_stream_ = block.stream;
  Arena& arena = arenas_.back();
  block.address = arena.base + static_cast<std::uintptr_t>(offset);
  block.capacity = plan_->capacity[k];
  if (!late_.empty() && late_.intersects({block.address, block.address + static_cast<std::uintptr_t>(block.capacity)})) {
    clean_ = false;
    return invite(block, Reason::late);
  }
  if (holes_) holes_->take({block.address, block.address + static_cast<std::uintptr_t>(block.capacity)});
  block.where = Where::slot;
  block.slot = k;
  block.arena = static_cast<std::uint32_t>(arenas_.size() - 1);
  ++arena.live;
  ++count(counters_, Reason::replayed);
  const BlockId id = blocks_.insert(block);
  in_slot_[k] = id;
  return {block.address, id, static_cast<std::uint8_t>(Reason::replayed)};
}

Grant Replay::send_upstream(Block& block, Reason reason) {
  block.where = Where::upstream;
  block.address = 0;  // until adopt()
  block.capacity = block.size;
  counters_.upstream_bytes += block.size;
  ++count(counters_, reason);
  return {0, blocks_.insert(block), static_cast<std::uint8_t>(reason)};
}

// Serves as a guest of the arena, or upstream where there is no room.
Grant Replay::invite(Block& block, Reason reason) {
  Arena& arena = arenas_.back();
  if (arena.size == 0 || block.stream != arena_stream_) return send_upstream(block, reason);
  if (!holes_) find_holes();
  const Bytes capacity = (std::max<Bytes>(block.size, 1) + unit_ - 1) / unit_ * unit_;
  const bool anywhere = plan_ == nullptr || lost_in_a_row_ >= kLost || given_up();
  const auto bytes = static_cast<std::uintptr_t>(capacity);
  std::uintptr_t address = 0;
  if (!anywhere && block.located != kNoRequest && plan_->lasting(block.located)) {
    const RequestNumber end = plan_->end[block.located];
    address = holes_->highest(bytes, kHoleTries, [&](Range r) { return !wanted(r, end); });
  } else {
    const RequestNumber soon = cursor_ + kHorizon;
    address = holes_->best_fit(bytes, kHoleTries, [&](Range r) { return anywhere || !wanted(r, soon); });
  }
  if (address == 0) return send_upstream(block, reason);
  block.address = address;
  block.capacity = capacity;
  block.where = Where::late;
  block.slot = kNoRequest;
  block.arena = static_cast<std::uint32_t>(arenas_.size() - 1);
  ++arena.live;
  ++counters_.guests;
  ++count(counters_, reason);
  const BlockId id = blocks_.insert(block);
  late_.insert(range_of(id));
  holes_->take(range_of(id));
  return {address, id, static_cast<std::uint8_t>(reason)};
}

// Whether the plan needs the range before request `until`.
bool Replay::wanted(Range r, RequestNumber until) const {
  const std::size_t end = std::min<std::size_t>(plan_->size(), until);
  const std::uintptr_t base = arenas_.back().base;
  for (std::size_t k = cursor_; k < end; ++k) {
    if (plan_->offset[k] == kUnplanned) continue;
    const std::uintptr_t begin = base + static_cast<std::uintptr_t>(plan_->offset[k]);
    if (r.intersects({begin, begin + static_cast<std::uintptr_t>(plan_->capacity[k])})) return true;
  }
  return false;
}

void Replay::find_holes() {
  const Arena& arena = arenas_.back();
  holes_.emplace(Range{arena.base, arena.base + static_cast<std::uintptr_t>(arena.size / unit_ * unit_)});
  for (BlockId id = 0; id < blocks_.extent(); ++id) {
    const Block& block = blocks_[id];
    const bool in_arena = block.where == Where::slot || block.where == Where::late;
    if (in_arena && in_current_arena(block)) holes_->take(range_of(id));
  }
}

void Replay::adopt(BlockId id, std::uintptr_t address) { blocks_[id].address = address; }

void Replay::cancel(BlockId id) { release(id); }

bool Replay::release(BlockId id) {
  const Block block = blocks_[id];
  recorder_.free(block.birth);
  if (plan_ != nullptr && plan_->merged() && recorder_.is_current(block.birth)) {
    tracker_.freed(*plan_, block.located, recorder_.requests() - block.birth.request);
  }
  counters_.live_bytes -= block.size;
  if (block.where == Where::upstream) {
    counters_.upstream_bytes -= block.size;
  } else {
    if (block.where == Where::slot) in_slot_[block.slot] = kNoBlock;
    if (block.where == Where::late) late_.erase(block.address);
    --arenas_[block.arena].live;
    if (holes_ && in_current_arena(block)) holes_->give(range_of(id));
  }
  blocks_[id].where = Where::nowhere;
  blocks_.erase(id);
  if (kDebug) assert_invariants();
  return block.where == Where::upstream;
}

// ------------------------------------------------------------------------------------------- keeping in step

// The plan's request that this one is, or kNoRequest. Moves the cursor past it.
RequestNumber Replay::align(Bytes size) {
  if (given_up()) return kNoRequest;
  if (plan_->merged()) return track(size);
  if (!equals(cursor_, size)) {
    if (!exact_so_far_ || !follow_another(size)) return resynchronize(size);
  }
  alignment_ = Alignment::exact;
  process_due(cursor_);
  return cursor_++;
}

// The same for a merged plan.
RequestNumber Replay::track(Bytes size) {
  located_ = tracker_.locate(*plan_, size);
  if (located_ == kNoRequest) return kNoRequest;
  if (located_ < cursor_) {
    go_back_to(located_);
  } else {
    counters_.missing += located_ - cursor_;
    skip_to(located_);
  }
  process_due(cursor_);
  const RequestNumber k = cursor_++;
  if (!fits(k, size)) return kNoRequest;
  if (size < plan_->requested[k]) ++counters_.smaller;
  return k;
}

// Whether another plan begins as this step did, and goes on with this request. Then it is followed from here.
bool Replay::follow_another(Bytes size) {
  for (const PlanPtr& other : others_) {
    if (!other->merged() && cursor_ < other->size() && other->requested[cursor_] == size &&
        other->prefix[cursor_] == plan_->prefix[cursor_]) {
      follow(other);
      return true;
    }
  }
  return false;
}

// At the end of the step: whether another plan is what this step was, from its first request to its last.
bool Replay::follow_shorter() {
  for (const PlanPtr& other : others_) {
    if (!other->merged() && other->size() == cursor_ && other->prefix[cursor_] == plan_->prefix[cursor_]) {
      follow(other);
      return true;
    }
  }
  return false;
}

// Makes `plan` the one that is followed; what lives in the slots of the former one is late to it.
void Replay::follow(PlanPtr plan) {
  if (plan == plan_) return;
  for (const BlockId id : in_slot_) {
    if (id != kNoBlock) make_late(id);
  }
  plan_ = std::move(plan);
  in_slot_.assign(plan_ == nullptr ? 0 : plan_->size(), kNoBlock);
}

// The named slow path of align(): the request is not the one that the cursor expects.
RequestNumber Replay::resynchronize(Bytes size) {
  exact_so_far_ = false;
  const Bytes previous = std::exchange(previous_, size);
  const Alignment before = std::exchange(alignment_, Alignment::lost);
  RequestNumber at = realign(size, previous, before);
  if (at != kNoRequest) {
    counters_.missing += at - cursor_ - (before == Alignment::lost ? 1 : 0);
    clean_ = false;
    alignment_ = Alignment::exact;
  } else if (before == Alignment::tentative && !fits(cursor_, size) && equals(cursor_ - 1, size)) {
    alignment_ = Alignment::exact;  // the previous one was extra, and sits in this one's slot
  } else if (before == Alignment::lost && fits(cursor_ + 1, size)) {
    at = cursor_ + 1;  // most likely the previous one had come in the place of k
  } else if (fits(cursor_, size) && !(before == Alignment::exact && 2 * size < plan_->requested[cursor_])) {
    at = cursor_;
  }
  if (at != kNoRequest && alignment_ == Alignment::lost) {
    ++counters_.smaller;
    alignment_ = Alignment::tentative;
  }
  if (at == kNoRequest) return kNoRequest;
  skip_to(at);
  process_due(at);
  cursor_ = at + 1;
  return at;
}

// Where two requests in a row, the previous one and this, stand next to each other in the plan a little ahead.
RequestNumber Replay::realign(Bytes size, Bytes previous, Alignment before) const {
  if (before == Alignment::exact) return kNoRequest;
  if (before == Alignment::lost && equals(cursor_ + 1, size)) return cursor_ + 1;
  const RequestNumber base = before == Alignment::lost ? cursor_ : cursor_ - 1;
  for (RequestNumber d = 1; d <= kWindow; ++d) {
    if (equals(base + d, previous) && equals(base + d + 1, size)) return base + d + 1;
  }
  return kNoRequest;
}

// Passes over requests that are not coming: what was due at them is due all the same.
void Replay::skip_to(RequestNumber k) {
  travelled_ += k - cursor_;
  for (; cursor_ < k; ++cursor_) process_due(cursor_);
}

// What was due between stays late; what sits in the slots between came after k, and the plan does not know of it at k.
void Replay::go_back_to(RequestNumber k) {
  travelled_ += cursor_ - k;
  for (; cursor_ > k; --cursor_) {
    if (const BlockId id = in_slot_[cursor_ - 1]; id != kNoBlock) make_late(id);
  }
}

void Replay::process_due(RequestNumber k) {
  for (std::uint32_t i = plan_->due_begin[k]; i < plan_->due_begin[k + 1]; ++i) {
    const BlockId id = in_slot_[plan_->due[i]];
    if (id != kNoBlock) make_late(id);
  }
}

void Replay::make_late(BlockId id) {
  Block& block = blocks_[id];
  late_.insert(range_of(id));
  in_slot_[block.slot] = kNoBlock;
  block.slot = kNoRequest;
  block.where = Where::late;
}

// ------------------------------------------------------------------------------------------------------- steps

bool Replay::begin_step(ThreadId thread, PlanPtr plan, std::vector<PlanPtr> others) {
  if (recorder_.in_step()) return false;
  const auto too_large = [this](const PlanPtr& p) { return p->arena_bytes > arena().size; };
  others.erase(std::remove_if(others.begin(), others.end(), too_large), others.end());
  if (plan != nullptr && too_large(plan)) plan = nullptr;
  others_ = std::move(others);
  follow(std::move(plan));
  owner_ = thread;
  interrupted_ = false;
  unknown_ = 0;
  lost_in_a_row_ = 0;
  holes_.reset();
  exact_so_far_ = plan_ == nullptr || !plan_->merged();
  cursor_ = 0;
  travelled_ = 0;
  tracker_.begin();
  alignment_ = Alignment::exact;
  clean_ = plan_ != nullptr && !plan_->merged();
  recorder_.begin_step();
  return true;
}

StepOutcome Replay::end_step() {
  StepOutcome outcome;
  if (plan_ != nullptr) {
    if (cursor_ < plan_->size() && exact_so_far_) follow_shorter();
    const auto n = static_cast<RequestNumber>(plan_->size());
    if (cursor_ < n) {
      counters_.missing += n - cursor_;
      clean_ = false;
    }
    skip_to(n);
    process_due(n);  // freed after the last request
  }
  outcome.clean = clean_;
  outcome.tag = plan_ == nullptr ? 0 : plan_->tag;
  outcome.complete = !recorder_.truncated();
  if (clean_ && !recorder_.timestamps()) {
    recorder_.drop_step();
  } else {
    outcome.log = recorder_.end_step();
  }
  if (kDebug) assert_invariants();
  return outcome;
}

void Replay::set_interrupted(ThreadId thread, bool interrupted) {
  if (recorder_.in_step() && thread == owner_) interrupted_ = interrupted;
}

void Replay::reserve(std::uintptr_t base, Bytes size) {
  if (Arena& arena = arenas_.back(); arena.base == base) {
    counters_.arena_bytes += size - arena.size;
    arena.size = size;
  } else {
    arenas_.push_back({base, size, 0});
    counters_.arena_bytes += size;
    arena_stream_.reset();
  }
  holes_.reset();
  note_peaks();
}

bool Replay::retire_idle_arena() {
  if (arenas_.back().base == 0 || arenas_.back().live != 0) return false;
  arenas_.push_back(Arena{});
  others_.clear();
  follow(nullptr);
  holes_.reset();
  clean_ = false;
  return true;
}

std::vector<std::uintptr_t> Replay::take_dead_arenas() {
  std::vector<std::uintptr_t> dead;
  // Blocks name their arena by index, so entries stay; a dead one has base 0.
  for (std::size_t i = 0; i + 1 < arenas_.size(); ++i) {
    Arena& arena = arenas_[i];
    if (arena.base == 0 || arena.live != 0) continue;
    dead.push_back(arena.base);
    counters_.arena_bytes -= arena.size;
    arena = Arena{};
  }
  return dead;
}

void Replay::note_peaks() {
  counters_.peak_live_bytes = std::max(counters_.peak_live_bytes, counters_.live_bytes);
  counters_.peak_reserved_bytes =
      std::max(counters_.peak_reserved_bytes, counters_.arena_bytes + counters_.upstream_bytes);
}

void Replay::reset_peaks() {
  counters_.peak_live_bytes = counters_.live_bytes;
  counters_.peak_reserved_bytes = counters_.arena_bytes + counters_.upstream_bytes;
}

// -------------------------------------------------------------------------------------------------- invariants

Range Replay::range_of(BlockId id) const {
  const Block& block = blocks_[id];
  return {block.address, block.address + static_cast<std::uintptr_t>(block.capacity)};
}

std::vector<BlockId> Replay::live_blocks() const {
  std::vector<BlockId> live;
  for (BlockId id = 0; id < blocks_.extent(); ++id) {
    if (blocks_[id].where != Where::nowhere) live.push_back(id);
  }
  return live;
}

void Replay::assert_invariants() const {
  const std::vector<BlockId> live = live_blocks();
  require(live.size() == blocks_.live(), "the table counts its live blocks");

  std::vector<Range> ranges;
  std::vector<std::uint32_t> live_in(arenas_.size());
  Bytes bytes = 0;
  Bytes upstream = 0;
  std::size_t late = 0;
  for (const BlockId id : live) {
    const Block& block = blocks_[id];
    bytes += block.size;
    if (block.where == Where::upstream) {
      upstream += block.size;
      if (block.address == 0) continue;  // upstream has not answered yet
    } else {
      const Arena& arena = arenas_[block.arena];
      ++live_in[block.arena];
      require(arena.base <= block.address &&
                  range_of(id).end <= arena.base + static_cast<std::uintptr_t>(arena.size),
              "a block served from the plan lies in its arena");
    }
    if (block.where == Where::slot) require(in_slot_[block.slot] == id, "a slot knows its block");
    if (block.where == Where::late) {
      ++late;
      require(late_.intersects(range_of(id)), "a late block stands in the late set");
    }
    ranges.push_back(range_of(id));
  }
  require(late == late_.size(), "the late set holds the late blocks and no others");
  require(bytes == counters_.live_bytes && upstream == counters_.upstream_bytes, "bytes are conserved");
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    require(live_in[i] == arenas_[i].live, "an arena counts its live blocks");
  }
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    require(ranges[i - 1].end <= ranges[i].begin, "live blocks are disjoint");
  }
}

}  // namespace stowplan::allocator
