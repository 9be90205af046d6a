#include "device_pool.hpp"

#include <algorithm>
#include <iterator>

namespace stowplan::allocator {

using Lock = std::lock_guard<profiler::SpinLock>;

// ---------------------------------------------------------------------------------------------------- upstream

Answer DevicePool::ask(Bytes size, bool sample, void* client) const {
  Answer answer;
  Device::checked(device_.ask(device_.owner, client, size, sample, &answer));
  return answer;
}

Answer DevicePool::ask_upstream(BlockId id, Bytes size, Reason reason, void* client) {
  const bool sample = reason == Reason::no_plan;
  const bool is_planned = reason == Reason::late || reason == Reason::mismatch || reason == Reason::unmapped;
  settle();
  Answer answer;
  Bytes shrunk = 0;
  if (const Bytes excess = has_virtual_memory() ? this->excess(id, size) : 0; excess > 0) {
    if (is_planned && shelter(id, reason, answer.address)) return answer;
    shrunk = shrink_arenas(excess);
  }
  answer = ask(size, sample, client);
  Kept error(device_, answer.error);
  const auto ask_again = [&] {
    answer = ask(size, sample, client);
    error = Kept(device_, answer.error);
  };
  if (answer.out_of_memory && give_back_held() > 0) ask_again();
  if (answer.out_of_memory && shelter(id, reason, answer.address)) {
    answer.error = 0;
    return answer;
  }
  if (answer.out_of_memory) {
    const Bytes more = shrink_arenas(size);
    shrunk += more;
    if (more > 0 || (!has_virtual_memory() && give_back() > 0)) ask_again();
  }
  if (answer.error != 0) {
    if (shrunk > 0) restore_arenas(shrunk);
    locked_.refuse(id);
    error.release();
  } else {
    Lock lock(lock_);
    lanes_.adopt(id, answer.address);
  }
  return answer;
}

// Bytes that the device would have in use, with a block more, beyond what it may.
Bytes DevicePool::excess(BlockId id, Bytes size) {
  const Bytes most = room(false) + a_little();
  Lock lock(lock_);
  return size - lanes_.rise(id) - most;
}

// Bytes by which the device may have more in use than has been live at a time: a share, and a page for each arena.
Bytes DevicePool::a_little() {
  Lock lock(lock_);
  Bytes pages = 0;
  for (const auto& [base, arena] : arenas_) pages += arena.mapping != nullptr ? arena.mapping->page() : 0;
  return lanes_.counters().peak_by_stream() / kNearly + pages;
}

// Bytes that may come to arenas and upstream's blocks; less than 0 where they have more. Memory that one stream is done
// with goes to no other in CuPy's own pool: so what has been live at a time counts by stream. `within_limit`: see
// Device::room().
Bytes DevicePool::room(bool within_limit) {
  const auto ask = [this](bool within_limit) {
    const Bytes room = device_.room(device_.owner, within_limit);
    if (room < 0) throw OwnersError();
    return room;
  };
  const Counters now = locked_.counters();
  const Bytes more = within_limit ? 0 : now.peak_by_stream() - now.peak_live_bytes;
  const Bytes room = ask(within_limit);
  return (more > 0 ? std::min(room + more, ask(true)) : room) - now.arena_bytes;
}

// Takes into the arena what upstream has no memory for, wherever nothing lives.
bool DevicePool::shelter(BlockId id, Reason reason, std::uintptr_t& address) {
  Lock lock(lock_);
  if (!lanes_.shelter(id, reason)) return false;
  address = lanes_.range_of(id).begin;
  if (kDebug) lanes_.assert_invariants();
  return true;
}

// ------------------------------------------------------------------------------------------------------ arenas

namespace {
thread_local bool learns = false;
}

void DevicePool::learn_here() { learns = true; }

bool DevicePool::reserve(LaneNumber lane, Bytes size) {
  if (size <= locked_.arena_bytes(lane)) return true;
  if (learns) {
    Lock lock(lock_);
    if (const auto at = refused_.find(lane); at != refused_.end()) {
      const bool is_more = size >= at->second;
      refused_.erase(at);
      if (is_more) return false;
    }
    Bytes& wanted = reserves_later_[lane];
    wanted = std::max(wanted, size);
    has_chores_ = true;
    return true;
  }
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
  return mapping->mapped() > 0 || error == 0 || error == VirtualArena::kOutOfMemory;
}

// Does what was put off, and lets arenas grow; not while a stream is being captured.
void DevicePool::do_chores(Bytes size) {
  if (Device::checked(device_.capturing(device_.owner)) != 0) return;
  std::map<LaneNumber, Bytes> reserves;
  bool drops = false;
  {
    Lock lock(lock_);
    reserves.swap(reserves_later_);
    drops = std::exchange(drops_later_, false);
  }
  if (drops) drop_dead_arenas();
  for (const auto& [lane, wanted] : reserves) {
    try {
      if (reserve(lane, wanted)) continue;
    } catch (const OwnersError&) {  // the request has nothing to do with it
      device_.forget_error(device_.owner);
    }
    Lock lock(lock_);
    refused_[lane] = wanted;
  }
  grow_arenas(size);
}

// Gives growing arenas all that they lack, where there has come to be room; else what the place of a request lacks, if
// that is no more than upstream would take for it, and the device has not more in use then than has been live at a
// time, and some: else the request is sheltered in what the arena has.
void DevicePool::grow_arenas(Bytes size) {
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

// An arena grows between steps, and while its plan is followed: in another step guests would take what it has got, and
// stand where the plan puts what is alive elsewhere. One that had to shrink rests for a while.
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
  Device::checked(device_.note_arenas(device_.owner, locked_.counters().arena_bytes + bytes));
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
      if (gone > before) {
        arena.rest = step > arena.grows_again + kLongest ? 1 : std::min(2 * arena.rest + 1, kLongest);
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
  const bool grows = may_grow && !growing().empty();
  {
    Lock lock(lock_);
    has_chores_ = grows || drops_later_ || !reserves_later_.empty();
  }
  Device::checked(device_.note_arenas(device_.owner, locked_.counters().arena_bytes));
}

std::size_t DevicePool::drop_dead_arenas() {
  std::vector<ArenaMemory> dead;
  {
    Lock lock(lock_);
    if (learns) {
      drops_later_ = has_chores_ = true;
      return 0;
    }
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
std::size_t DevicePool::give_back_held() {
  {
    Lock lock(lock_);
    if (held_.empty()) return 0;
  }
  return make_idle() ? settle() : 0;
}

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

// ------------------------------------------------------------------------------------------------- held blocks

void DevicePool::hold(BlockId id, const std::vector<Token>& streams, Token memory) {
  const auto held = std::make_shared<Held>();
  held->memory = Kept(device_, memory);
  held->uses.resize(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) held->uses[i].stream = Kept(device_, streams[i]);
  try {
    record_events(*held);
  } catch (const OwnersError&) {
    device_.forget_error(device_.owner);
    // The memory's guard waits for the device.
    if (memory != 0 || make_idle()) return release(id);
  }
  Lock lock(lock_);
  const auto has_event = [](const Use& use) { return use.event.token() != 0; };
  const bool recorded = std::all_of(held->uses.begin(), held->uses.end(), has_event);
  held_.emplace(id, held);
  lanes_.hold(id, recorded);
  if (kDebug) lanes_.assert_invariants();
}

// The held blocks whose place a request was given: under the lock that it was given under, as the next request of the
// lane may be another thread's.
std::vector<DevicePool::HeldPtr> DevicePool::take_awaited(BlockId granted) {
  std::vector<HeldPtr> awaited;
  for (const BlockId id : lanes_.awaited(granted)) {
    const auto at = held_.find(id);
    if (at == held_.end()) continue;
    awaited.push_back(std::move(at->second));
    held_.erase(at);
  }
  lanes_.drop_awaited(granted);
  if (kDebug) lanes_.assert_invariants();
  return awaited;
}

// Has a stream wait for what others do with the blocks whose place it was given. Where it cannot, they are held on.
void DevicePool::wait_for_uses(const std::vector<HeldPtr>& awaited, BlockId granted, Stream stream) {
  try {
    for (const HeldPtr& held : awaited) {
      for (const Use& use : held->uses) Device::checked(device_.wait(device_.owner, stream, use.event.token()));
    }
  } catch (const OwnersError&) {
    const auto held = std::make_shared<Held>();
    held->former = awaited;
    Lock lock(lock_);
    held_.emplace(granted, held);
    lanes_.hold(granted, false);
    if (kDebug) lanes_.assert_invariants();
    throw;
  }
}

std::size_t DevicePool::settle() {
  std::vector<std::pair<BlockId, HeldPtr>> all;
  {
    Lock lock(lock_);
    all.assign(held_.begin(), held_.end());
  }
  if (all.empty() || Device::checked(device_.capturing(device_.owner)) != 0) return 0;
  std::size_t settled = 0;
  for (const auto& [id, held] : all) {
    if (!is_done(*held)) continue;
    {
      Lock lock(lock_);
      const auto at = held_.find(id);
      if (at == held_.end() || at->second != held) continue;  // another thread was first
      held_.erase(at);
      lanes_.let_go(id);
      if (kDebug) lanes_.assert_invariants();
    }
    if (held->memory.token() != 0) device_.unguard(device_.owner, held->memory.token());
    ++settled;
  }
  return settled;
}

// Whether all streams are done with a block. Records the events that were not recorded yet.
bool DevicePool::is_done(Held& held) {
  try {
    record_events(held);
  } catch (const OwnersError&) {
    device_.forget_error(device_.owner);
    return make_idle();
  }
  const auto is_over = [this](const Use& use) {
    const Token event = event_of(use);
    return event != 0 && Device::checked(device_.done(device_.owner, event)) != 0;
  };
  return std::all_of(held.uses.begin(), held.uses.end(), is_over) &&
         std::all_of(held.former.begin(), held.former.end(), [this](const HeldPtr& one) { return is_done(*one); });
}

void DevicePool::record_events(Held& held) {
  for (Use& use : held.uses) {
    if (event_of(use) != 0) continue;
    Token event = 0;
    Device::checked(device_.record(device_.owner, use.stream.token(), &event));
    Kept recorded(device_, event);
    Lock lock(lock_);
    if (use.event.token() == 0) use.event.swap(recorded);  // else another thread was first
  }
}

// Waits for the device; false: it cannot be waited for now.
bool DevicePool::make_idle() const {
  if (device_.synchronize(device_.owner) >= 0) return true;
  device_.forget_error(device_.owner);
  return false;
}

Token DevicePool::event_of(const Use& use) {
  Lock lock(lock_);
  return use.event.token();
}

}  // namespace stowplan::allocator
