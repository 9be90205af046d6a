#include "device_pool.hpp"

#include <algorithm>

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
  settle();
  Answer answer = ask(size, sample, client);
  if (answer.error != 0) {
    Kept first(device_, answer.error);
    if (give_back() > 0) {
      answer = ask(size, sample, client);
    } else {
      first.release();
    }
  }
  if (answer.error != 0) {
    locked_.note_failure(id);
  } else {
    Lock lock(lock_);
    lanes_.adopt(id, answer.address);
  }
  return answer;
}

bool DevicePool::reserve(LaneNumber lane, Bytes size) {
  if (size <= locked_.arena_size(lane)) return true;
  if (Device::checked(device_.capturing(device_.owner)) != 0) return false;  // nobody may wait for the device
  const Answer answer = ask(size, false, nullptr);
  const Kept error(device_, answer.error);
  Kept memory(device_, answer.memory);
  if (answer.error != 0) return false;
  synchronize();  // what streams still do with its memory is over then
  {
    Lock lock(lock_);
    arenas_[answer.address] = std::move(memory);
    lanes_.lane(lane).reserve(answer.address, size);
  }
  drop_dead_arenas();
  return true;
}

std::size_t DevicePool::drop_dead_arenas() {
  std::vector<Kept> dead;
  {
    Lock lock(lock_);
    for (const std::uintptr_t base : lanes_.take_dead_arenas()) {
      const auto at = arenas_.find(base);
      dead.push_back(std::move(at->second));
      arenas_.erase(at);
    }
  }
  return dead.size();
}

std::size_t DevicePool::give_back() {
  bool holds = false;
  {
    Lock lock(lock_);
    holds = !held_.empty();
  }
  std::size_t settled = 0;
  if (holds) {
    synchronize();
    settled = settle();
  }
  locked_.retire_idle_arenas();
  return drop_dead_arenas() + settled;
}

void DevicePool::close() {
  std::unordered_map<BlockId, HeldPtr> held;
  std::unordered_map<std::uintptr_t, Kept> arenas;
  Lock lock(lock_);
  held.swap(held_);
  arenas.swap(arenas_);
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
