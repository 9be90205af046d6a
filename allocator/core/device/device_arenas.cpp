// The arenas of a device's pool: reserved, grown in place or replaced, shrunk for others, given back.
#include <algorithm>
#include <optional>

#include "device_pool.hpp"

namespace stowplan::allocator {

using Lock = std::lock_guard<SpinLock>;

namespace {

// Tells an arena whose requests it serves: what it takes, that stream may use at once, and no other.
void note_user(HeapArena& arena, std::optional<Stream> stream) { stream ? arena.use(*stream) : arena.lose_stream(); }

// Leaves so many bytes of some ranges: of the smallest one that has them, or of all, the first ones.
void keep_rest(std::vector<Range>& ranges, Bytes enough) {
  enough = std::max((enough + DeviceHeap::kUnit - 1) / DeviceHeap::kUnit * DeviceHeap::kUnit, Bytes{0});
  const auto is_better = [&](Range one, Range other) {
    return std::pair(one.size() < enough, one.size()) < std::pair(other.size() < enough, other.size());
  };
  const auto best = std::min_element(ranges.begin(), ranges.end(), is_better);
  if (best != ranges.end() && best->size() >= enough) ranges = {*best};
  std::vector<Range> kept;
  for (const Range range : ranges) {
    const Bytes part = std::min(range.size(), enough);
    if (part > 0) kept.push_back({range.begin, range.begin + static_cast<std::uintptr_t>(part)});
    enough -= part;
  }
  ranges.swap(kept);
}

}  // namespace

bool DevicePool::reserve(LaneNumber lane, Bytes size) {
  if (size <= locked_.arena(lane).whole()) return true;
  if (memory_.is_capturing()) return false;
  return has_virtual_memory() ? grow_in_place(lane, size) : replace_arena(lane, size);
}

// Takes a larger arena from upstream. One in which nothing lives makes room for it; it comes again if there is none.
bool DevicePool::replace_arena(LaneNumber lane, Bytes size) {
  const Bytes before = locked_.arena_bytes(lane);
  settle();
  locked_.retire_idle_arena(lane);
  drop_dead_arenas();
  memory_.trim();
  if (take_arena(lane, size)) return true;
  if (locked_.arena_bytes(lane) < before) take_arena(lane, before);
  return false;
}

bool DevicePool::take_arena(LaneNumber lane, Bytes size) {
  CudaError error = kCudaSuccess;
  OwnBlock memory(memory_.take(Wanted{size, 0, true}, error), {&memory_});
  if (memory == nullptr || !make_idle()) return false;  // what streams still do with its memory is over now
  {
    Lock lock(lock_);
    const auto address = reinterpret_cast<std::uintptr_t>(memory->address);
    arenas_[address].block = std::move(memory);
    lanes_.lane(lane).reserve(address, size);
  }
  drop_dead_arenas();
  return true;
}

// Gives a lane's arena, or a new one, as much memory as there is room for; all of it before the first step, when
// nothing that it has a place for lives elsewhere. What it lacks, requests in that range do without. False where there
// are no addresses for it.
bool DevicePool::grow_in_place(LaneNumber lane, Bytes size) {
  std::shared_ptr<HeapArena> arena = arena_of(lane);
  if (arena == nullptr || !arena->reach_to(size)) arena = place_arena(lane, size);
  if (arena == nullptr) return false;
  Bytes wanted = (size + kUnit - 1) / kUnit * kUnit;
  bool is_first = false;
  {
    Lock lock(lock_);
    const auto at = arenas_.find(arena->base());
    if (at == arenas_.end()) return true;  // another thread gave it back
    wanted = at->second.wanted = std::max(at->second.wanted, wanted);
    is_first = lanes_.counters().steps == 0;
  }
  Bytes bytes = bytes_for(*arena, wanted, is_first);
  if (!may_grow(lane)) {
    bytes = 0;
  } else if (bytes < wanted - arena->bytes()) {
    if (settle() > 0) bytes = bytes_for(*arena, wanted, is_first);  // what streams held makes room
    if (bytes == 0) give_idle(*arena, lane);                        // requests take what their places lack
  }
  const CudaError error = extend(*arena, lane, 0, wanted, bytes, true);
  has_growing_ = error == kCudaSuccess && !growing().empty();
  return arena->bytes() > 0 || error == kCudaSuccess || error == kCudaOutOfMemory;
}

// Gives growing arenas all the bytes that they lack, if there is room for them. If not, the arena gets what the place
// of this request lacks, provided that upstream would take no less for it and that then at most the live peak and
// `a_little` is live. Failing that, the arena's own memory shelters the request. Nothing while a stream is being
// captured.
void DevicePool::grow_arenas(Bytes size) {
  if (memory_.is_capturing()) return;
  CudaError error = kCudaSuccess;
  for (const Growing& one : growing()) {
    if (error != kCudaSuccess || !may_grow(one.lane)) continue;
    HeapArena& arena = *one.arena;
    const auto [begin, end] = locked(lock_, [&] { return lanes_.lane(one.lane).expected_place(size); });
    const Bytes lacking = arena.missing(begin, end);
    if (lacking > 0 && lacking <= spare(false)) error = extend(arena, one.lane, begin, end, lacking, false);
    if (error != kCudaSuccess) continue;
    error = extend(arena, one.lane, 0, one.wanted, bytes_for(arena, one.wanted, false), true);
  }
  has_growing_ = error == kCudaSuccess && !growing().empty();
}

// An arena grows between steps, and in a step that follows its plan: in any other step guests would take the new
// bytes, and lie where the plan places blocks.
bool DevicePool::may_grow(LaneNumber lane) {
  Lock lock(lock_);
  return !lanes_.lane(lane).runs_without_plan();
}

// How many more bytes an arena that is to have `wanted` may have now: all that it lacks, or none. Then it gets, request
// by request, what their places lack.
Bytes DevicePool::bytes_for(const HeapArena& arena, Bytes wanted, bool within_limit) {
  const Bytes missing = wanted - arena.bytes();
  return missing <= spare(within_limit) ? missing : 0;
}

// Takes so many more bytes of an arena, in these of its places, the last ones first; returns an error.
CudaError DevicePool::extend(HeapArena& arena, LaneNumber lane, Bytes begin, Bytes end, Bytes bytes, bool in_account) {
  if (bytes <= 0) return kCudaSuccess;
  locked(lock_, [&] { note_user(arena, lanes_.stream_of_lane(lane)); });
  const CudaError error = arena.extend(begin, end, bytes, in_account);
  note_memory(arena, lane);
  return error;
}

// Tells a lane what of its arena has memory, unless another thread gave it back, or has it shrink.
void DevicePool::note_memory(HeapArena& arena, LaneNumber lane) {
  Lock lock(lock_);
  Replay& replay = lanes_.lane(lane);
  const auto at = arenas_.find(arena.base());
  if (at == arenas_.end() || at->second.shrinks || replay.arena().base != arena.base()) return;
  replay.reserve(arena.base(), arena.reach(), arena.memory());
}

// Gives what nothing lives in to the heap; returns how many bytes. All of it where no plan is followed: in a retired
// arena, between the lane's steps, and where `unplanned`, a request of its own, is not the plan's. Else `enough`.
Bytes DevicePool::shrink_arenas(Bytes enough, BlockId unplanned) {
  if (!has_virtual_memory() || memory_.is_capturing()) return 0;
  struct Shrinking {
    std::shared_ptr<HeapArena> arena;
    LaneNumber lane;
    bool gives_all;
    std::vector<Range> idle;
  };
  std::vector<Shrinking> shrinking;
  {
    Lock lock(lock_);
    for (auto& [base, arena] : arenas_) {
      Replay& replay = lanes_.lane(arena.lane);
      const bool is_retired = replay.arena().base != base;
      const bool gives_all =
          is_retired || !replay.in_step() || (unplanned != kNoBlock && lanes_.is_of(unplanned, arena.lane));
      if (arena.shrinks || arena.of_heap == nullptr || (enough <= 0 && !gives_all)) continue;
      if (!is_retired && replay.arena().mapped == 0) continue;
      shrinking.push_back({arena.of_heap, arena.lane, gives_all, replay.withdraw_idle(base)});
      arena.shrinks = true;
    }
  }
  Bytes gone = 0;
  for (auto& [arena, lane, gives_all, idle] : shrinking) {
    if (!gives_all) keep_rest(idle, enough - gone);
    for (const Range range : idle) gone += range.size();
    give(*arena, lane, idle);
  }
  if (gone > 0) has_growing_ = true;
  return gone;
}

// A stream that has left has no memory by right any more, nor does its lane have an arena.
void DevicePool::note_departures() {
  const std::uint64_t departures = memory_.departures();
  if (departures_.exchange(departures) == departures) return;
  const std::vector<Stream> served = memory_.served();
  {
    Lock lock(lock_);
    lanes_.keep_streams(served);
    for (const auto& [base, arena] : arenas_) {
      const auto stream = lanes_.stream_of_lane(arena.lane);
      const bool is_served = !stream || *stream < 0 || std::count(served.begin(), served.end(), *stream) != 0;
      if (!is_served) lanes_.lane(arena.lane).retire_idle_arena();
    }
  }
  drop_dead_arenas();
}

void DevicePool::note_users() {
  Lock lock(lock_);
  for (const auto& [base, arena] : arenas_) {
    if (arena.of_heap != nullptr) note_user(*arena.of_heap, lanes_.stream_of_lane(arena.lane));
  }
}

// A lane's arena in the heap; null where it has none.
std::shared_ptr<HeapArena> DevicePool::arena_of(LaneNumber lane) {
  Lock lock(lock_);
  const auto at = arenas_.find(lanes_.lane(lane).arena().base);
  return at != arenas_.end() ? at->second.of_heap : nullptr;
}

// Has a lane's arena at another place, where what the present one does not use may serve it; null where there is none.
std::shared_ptr<HeapArena> DevicePool::place_arena(LaneNumber lane, Bytes size) {
  const Stream stream = locked_.stream_of_lane(lane).value_or(DeviceHeap::kShared);
  if (const std::shared_ptr<HeapArena> former = arena_of(lane)) {
    give_idle(*former, lane);
    locked_.retire_idle_arena(lane);
    drop_dead_arenas();
  }
  std::shared_ptr<HeapArena> arena = HeapArena::place(*heap_, size, stream);
  if (arena == nullptr) return nullptr;
  Lock lock(lock_);
  ArenaMemory& memory = arenas_[arena->base()];
  memory.of_heap = arena;
  memory.lane = lane;
  lanes_.lane(lane).reserve(arena->base(), arena->reach(), {});
  return arena;
}

void DevicePool::give_idle(HeapArena& arena, LaneNumber lane) {
  std::vector<Range> idle;
  {
    Lock lock(lock_);
    const auto at = arenas_.find(arena.base());
    if (at == arenas_.end() || at->second.shrinks) return;  // another thread gives it
    idle = lanes_.lane(lane).withdraw_idle(arena.base());
    at->second.shrinks = true;
  }
  give(arena, lane, idle);
}

// Gives the heap what a lane was told is not its own any more. `shrinks` is set meanwhile, so that no other thread
// tells the lane of that memory.
void DevicePool::give(HeapArena& arena, LaneNumber lane, const std::vector<Range>& idle) {
  if (const auto stream = locked_.stream_of_lane(lane)) arena.use(*stream);
  arena.give(idle);
  {
    Lock lock(lock_);
    const auto at = arenas_.find(arena.base());
    if (at == arenas_.end()) return;
    at->second.shrinks = false;
  }
  note_memory(arena, lane);
}

std::vector<DevicePool::Growing> DevicePool::growing() {
  Lock lock(lock_);
  std::vector<Growing> found;
  for (const auto& [base, arena] : arenas_) {
    const bool is_current = arena.of_heap != nullptr && lanes_.lane(arena.lane).arena().base == base;
    if (is_current && arena.of_heap->bytes() < arena.wanted) found.push_back({arena.of_heap, arena.lane, arena.wanted});
  }
  return found;
}

std::size_t DevicePool::drop_dead_arenas() {
  std::vector<ArenaMemory> dead;
  {
    Lock lock(lock_);
    for (const std::uintptr_t base : lanes_.take_dead_arenas()) {
      const auto at = arenas_.find(base);
      dead.push_back(std::move(at->second));
      arenas_.erase(at);
    }
  }
  for (const ArenaMemory& arena : dead) {
    const auto stream = locked_.stream_of_lane(arena.lane);
    if (arena.of_heap == nullptr || !stream) continue;
    arena.of_heap->use(*stream);
    if (!memory_.is_served(*stream)) heap_->leave(*stream, nullptr);  // its handle may be another stream's next
  }
  return dead.size();
}

std::size_t DevicePool::give_back() {
  const std::size_t settled = give_back_held();
  locked_.retire_idle_arenas();
  return drop_dead_arenas() + settled;
}

// Waits for what streams do with held blocks, and lets go of them; returns how many.
std::size_t DevicePool::give_back_held() { return any_held_ && make_idle() ? settle() : 0; }

void DevicePool::close() {
  std::unordered_map<BlockId, HeldPtr> held;
  std::unordered_map<std::uintptr_t, ArenaMemory> arenas;
  Lock lock(lock_);
  held.swap(held_);
  arenas.swap(arenas_);
  for (const auto& [base, arena] : arenas) {
    const auto stream = lanes_.stream_of_lane(arena.lane);
    if (arena.of_heap != nullptr && stream) arena.of_heap->use(*stream);
  }
}

}  // namespace stowplan::allocator
