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
  return (more > 0 ? std::min(room + more, ask(true)) : room) - mapped_bytes();
}

// Takes into the arena what upstream has no memory for, wherever nothing lives.
bool DevicePool::shelter(BlockId id, Reason reason, std::uintptr_t& address) {
  {
    Lock lock(lock_);
    if (!lanes_.shelter(id, reason)) return false;
    address = lanes_.range_of(id).begin;
    if (kDebug) lanes_.assert_invariants();
  }
  if (is_shared_) await_issued();
  return true;
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
  note_held();
  lanes_.hold(id, recorded);
  if (kDebug) lanes_.assert_invariants();
}

// The first half of a request, where something is held: looks for steps, and whether its stream may be told to wait for
// what is in its way. The device is asked only where something is. False: there was no memory to note the request.
bool DevicePool::look_for_held(Bytes size, Stream stream, ThreadId thread, bool& may_wait) {
  {
    Lock lock(lock_);
    try {
      may_wait = lanes_.is_in_the_way(size, stream, thread);
    } catch (const std::bad_alloc&) {
      lanes_.pass_over(thread);
      return false;
    }
  }
  if (!may_wait) return true;
  const int capturing = device_.capturing(device_.owner);
  if (capturing < 0) device_.forget_error(device_.owner);
  may_wait = capturing == 0;
  return true;
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
  note_held();
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
    waits_to_issue_.fetch_sub(1, std::memory_order_release);
  } catch (const OwnersError&) {
    waits_to_issue_.fetch_sub(1, std::memory_order_release);
    const auto held = std::make_shared<Held>();
    held->former = awaited;
    Lock lock(lock_);
    held_.emplace(granted, held);
    note_held();
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
      note_held();
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
