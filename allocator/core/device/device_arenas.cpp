// The arenas of a device's pool: reserved, grown in place or replaced, shrunk for others, given back.
#include <algorithm>
#include <iterator>

#include "device_pool.hpp"

namespace stowplan::allocator {

using Lock = std::lock_guard<profiler::SpinLock>;

bool DevicePool::reserve(LaneNumber lane, Bytes size) {
  if (size <= locked_.arena_bytes(lane)) return true;
  if (Device::checked(device_.capturing(device_.owner)) != 0) return false;
  if (has_virtual_memory() && grow_in_place(lane, size)) return true;
  return replace_arena(lane, size);
}

// Takes a larger arena from upstream. One in which nothing lives makes room for it; it comes again if there is none.
bool DevicePool::replace_arena(LaneNumber lane, Bytes size) {
  const Bytes before = locked_.arena_bytes(lane);
  settle();
  locked_.retire_idle_arena(lane);
  drop_dead_arenas();
  Device::checked(device_.trim(device_.owner));
  if (take_arena(lane, size)) return true;
  if (locked_.arena_bytes(lane) < before) take_arena(lane, before);
  return false;
}

bool DevicePool::take_arena(LaneNumber lane, Bytes size) {
  const Answer answer = ask(size, false, nullptr);
  const Kept error(device_, answer.error);
  Kept memory(device_, answer.memory);
  if (answer.error != 0 || !make_idle()) return false;  // what streams still do with its memory is over now
  {
    Lock lock(lock_);
    ArenaMemory& arena = arenas_[answer.address];
    arena.upstream = std::move(memory);
    lanes_.lane(lane).reserve(answer.address, size);
  }
  drop_dead_arenas();
  return true;
}

// Gives a lane's arena, or a new one, as much memory as there is room for; all of it before the first step, when
// nothing that it has a place for lives elsewhere. What it lacks, requests in that range do without. False where there
// is no virtual memory.
bool DevicePool::grow_in_place(LaneNumber lane, Bytes size) {
  const std::shared_ptr<VirtualArena> mapping = mapping_of(lane);
  if (mapping == nullptr || size > mapping->reach()) return false;
  Bytes wanted = mapping->rounded(size);
  bool is_first = false;
  {
    Lock lock(lock_);
    const auto at = arenas_.find(mapping->base());
    if (at == arenas_.end()) return true;  // another thread gave it back
    wanted = at->second.wanted = std::max(at->second.wanted, wanted);
    is_first = lanes_.counters().steps == 0;
  }
  Bytes bytes = bytes_for(*mapping, wanted, is_first);
  if (!may_grow(lane)) {
    bytes = 0;
  } else if (bytes < wanted - mapping->mapped() && make_idle()) {  // what streams still hold makes room
    settle();
    bytes = bytes_for(*mapping, wanted, is_first);
  }
  const int error = extend(*mapping, lane, 0, wanted, bytes);
  note_arenas(error == 0);
  return mapping->mapped() > 0 || error == 0 || error == kCudaOutOfMemory;
}

// Gives growing arenas all the bytes that they lack, if the device has room for them. If not, the arena gets what the
// place of this request lacks, provided that upstream would take no less for it and that the device then has at most
// the live peak and `a_little` in use. Failing that, the arena's own memory shelters the request. Nothing while a
// stream is being captured.
void DevicePool::grow_arenas(Bytes size) {
  if (Device::checked(device_.capturing(device_.owner)) != 0) return;
  int error = 0;
  for (const auto& [mapping, lane, wanted] : growing()) {
    if (error != 0 || !may_grow(lane)) continue;
    const auto [begin, end] = place_of_next(lane, *mapping, size);
    const Bytes lacking = mapping->missing(begin, end);
    if (lacking > 0 && lacking <= std::min(mapping->rounded(size), room(false) + a_little())) {
      error = extend(*mapping, lane, begin, end, lacking);
    }
    if (error == 0) error = extend(*mapping, lane, 0, wanted, bytes_for(*mapping, wanted, false));
  }
  note_arenas(error == 0);
}

// An arena grows between steps, and in a step that follows its plan: in any other step guests would take the new
// bytes, and lie where the plan places blocks. An arena that had to shrink rests for a step; or, where it had grown
// only just before, for twice as long as the last time.
bool DevicePool::may_grow(LaneNumber lane) {
  Lock lock(lock_);
  const Replay& replay = lanes_.lane(lane);
  const auto at = arenas_.find(replay.arena().base);
  const bool rests = at != arenas_.end() && lanes_.counters().steps < at->second.grows_again;
  return !replay.runs_without_plan() && !rests;
}

// The pages that the place of a lane's next request has, if it is for `size`; else none.
std::pair<Bytes, Bytes> DevicePool::place_of_next(LaneNumber lane, const VirtualArena& mapping, Bytes size) {
  Lock lock(lock_);
  const auto [begin, end] = lanes_.lane(lane).expected_place(size);
  return {mapping.whole(begin), mapping.rounded(end)};
}

// How many more bytes an arena that is to have `wanted` may have now: all that it lacks, or none. Then it gets, request
// by request, what their places lack.
Bytes DevicePool::bytes_for(const VirtualArena& mapping, Bytes wanted, bool within_limit) {
  const Bytes missing = wanted - mapping.mapped();
  return missing <= room(within_limit) + a_little() ? missing : 0;
}

// Maps so many more bytes of an arena, in these of its pages, the last ones first; returns an error.
int DevicePool::extend(VirtualArena& mapping, LaneNumber lane, Bytes begin, Bytes end, Bytes bytes) {
  if (bytes <= 0) return 0;
  Device::checked(device_.note_arenas(device_.owner, mapped_bytes() + bytes));
  const int error = mapping.extend(begin, end, bytes);
  note_memory(mapping, lane);
  return error;
}

// Tells a lane which of its arena's pages have memory, unless another thread gave it back, or has it shrink.
void DevicePool::note_memory(const VirtualArena& mapping, LaneNumber lane) {
  Lock lock(lock_);
  Replay& replay = lanes_.lane(lane);
  const auto at = arenas_.find(mapping.base());
  if (at == arenas_.end() || at->second.shrinks || replay.arena().base != mapping.base()) return;
  replay.reserve(mapping.base(), mapping.reach(), mapping.memory());
}

// Gives pages in which nothing lives back to the device, until so many bytes have gone; returns how many have.
Bytes DevicePool::shrink_arenas(Bytes enough) {
  constexpr std::uint64_t kLongest = 1024;
  constexpr std::uint64_t kPays = 4;  // steps for which pages that have come again must serve
  if (enough <= 0 || !has_virtual_memory() || Device::checked(device_.capturing(device_.owner)) != 0) return 0;
  struct Shrinking {
    std::shared_ptr<VirtualArena> mapping;
    LaneNumber lane;
    std::vector<Range> idle;
  };
  std::vector<Shrinking> shrinking;
  {
    Lock lock(lock_);
    for (auto& [base, arena] : arenas_) {
      Replay& replay = lanes_.lane(arena.lane);
      if (arena.shrinks || arena.mapping == nullptr || replay.arena().base != base) continue;
      if (replay.arena().mapped == 0) continue;
      shrinking.push_back({arena.mapping, arena.lane, replay.withdraw_idle()});
      arena.shrinks = true;
    }
  }
  const bool is_idle = !shrinking.empty() && make_idle();
  Bytes gone = 0;
  for (const auto& [mapping, lane, idle] : shrinking) {
    const Bytes before = gone;
    if (is_idle) gone += mapping->shrink(idle, enough - gone);
    {
      Lock lock(lock_);
      const auto at = arenas_.find(mapping->base());
      if (at == arenas_.end()) continue;
      ArenaMemory& arena = at->second;
      arena.shrinks = false;
      const std::uint64_t step = lanes_.counters().steps;
      if (gone > before && step >= arena.grows_again) {  // once for all requests of a step
        arena.rest = step >= arena.grows_again + kPays ? 1 : std::min(2 * arena.rest + 1, kLongest);
        arena.grows_again = step + arena.rest;
      }
    }
    note_memory(*mapping, lane);
  }
  if (gone > 0) note_arenas(true);
  return gone;
}

// Gives arenas back what did not help.
void DevicePool::restore_arenas(Bytes shrunk) {
  for (const auto& [mapping, lane, wanted] : growing()) {
    const Bytes bytes = std::min(shrunk, wanted - mapping->mapped());
    extend(*mapping, lane, 0, wanted, bytes);
    shrunk -= bytes;
  }
  note_arenas(true);
}

// A lane's mapping: that of its arena, or a new one, which is its arena then. Null where there is none to be had.
std::shared_ptr<VirtualArena> DevicePool::mapping_of(LaneNumber lane) {
  {
    Lock lock(lock_);
    const auto at = arenas_.find(lanes_.lane(lane).arena().base);
    if (at != arenas_.end()) return at->second.mapping;
  }
  std::shared_ptr<VirtualArena> mapping = VirtualArena::reserve(virtual_memory_);
  if (mapping == nullptr) return nullptr;
  Lock lock(lock_);
  ArenaMemory& arena = arenas_[mapping->base()];
  arena.mapping = mapping;
  arena.lane = lane;
  lanes_.lane(lane).reserve(mapping->base(), mapping->reach(), {});
  return mapping;
}

std::vector<DevicePool::Growing> DevicePool::growing() {
  Lock lock(lock_);
  std::vector<Growing> found;
  for (const auto& [base, arena] : arenas_) {
    const bool is_current = arena.mapping != nullptr && lanes_.lane(arena.lane).arena().base == base;
    if (is_current && arena.mapping->mapped() < arena.wanted) {
      found.push_back({arena.mapping, arena.lane, arena.wanted});
    }
  }
  return found;
}

// Tells the owner what arenas have; `may_grow`: within a step, too.
void DevicePool::note_arenas(bool may_grow) {
  has_growing_ = may_grow && !growing().empty();
  // Until it is so: another thread may change it meanwhile.
  for (Bytes noted = -1, now = mapped_bytes(); noted != now; now = mapped_bytes()) {
    Device::checked(device_.note_arenas(device_.owner, now));
    noted = now;
  }
}

// Bytes that arenas have in virtual memory. Those of others are upstream's, which counts them.
Bytes DevicePool::mapped_bytes() {
  Lock lock(lock_);
  Bytes mapped = 0;
  const auto add = [&mapped](const ArenaMemory& arena) {
    if (arena.mapping != nullptr) mapped += arena.mapping->mapped();
  };
  for (const auto& [base, arena] : arenas_) add(arena);
  for (const ArenaMemory& arena : waiting_) add(arena);
  return mapped;
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
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(dead));
    waiting_.clear();
  }
  const bool has_mappings =
      std::any_of(dead.begin(), dead.end(), [](const ArenaMemory& arena) { return arena.mapping != nullptr; });
  if (!has_mappings) return dead.size();
  const std::size_t count = dead.size();
  if (!make_idle()) {
    Lock lock(lock_);
    std::move(dead.begin(), dead.end(), std::back_inserter(waiting_));
    return 0;
  }
  dead.clear();
  note_arenas(true);
  return count;
}

std::size_t DevicePool::give_back() {
  const std::size_t settled = give_back_held();
  locked_.retire_idle_arenas();
  return drop_dead_arenas() + settled;
}

// Waits for what streams do with held blocks, and lets go of them; returns how many.
std::size_t DevicePool::give_back_held() { return any_held_ && make_idle() ? settle() : 0; }

std::vector<std::shared_ptr<VirtualArena>> DevicePool::close() {
  std::unordered_map<BlockId, HeldPtr> held;
  std::unordered_map<std::uintptr_t, ArenaMemory> arenas;
  std::vector<ArenaMemory> waiting;
  std::vector<std::shared_ptr<VirtualArena>> mappings;
  Lock lock(lock_);
  held.swap(held_);
  arenas.swap(arenas_);
  waiting.swap(waiting_);
  const auto take = [&](ArenaMemory& arena) {
    if (arena.mapping != nullptr) mappings.push_back(std::move(arena.mapping));
  };
  for (auto& [base, arena] : arenas) take(arena);
  for (ArenaMemory& arena : waiting) take(arena);
  return mappings;
}

}  // namespace stowplan::allocator
