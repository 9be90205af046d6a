#include "device_pool.hpp"

#include <algorithm>

namespace stowplan::allocator {

using Lock = std::lock_guard<SpinLock>;

// ------------------------------------------------------------------------------------------------------ the device

std::uintptr_t DevicePool::ask_device(const Grant& grant, Wanted wanted, CudaBlock*& memory, CudaError& error) {
  const auto reason = static_cast<Reason>(grant.reason);
  const BlockId id = grant.id;
  const Bytes size = wanted.size;
  wanted.is_sample = reason == Reason::no_plan;
  const bool is_planned = reason == Reason::late || reason == Reason::mismatch || reason == Reason::unmapped;
  settle();
  memory_.settle();
  std::uintptr_t address = 0;
  if (has_virtual_memory()) {
    const Bytes excess = this->excess(id, size);
    const bool leaves_plan = (wanted.is_sample || reason == Reason::mismatch) && !heap_->has_hole(size, stream_of(id));
    if (excess > 0 && is_planned && serve_from_holes(id, reason, address)) return address;
    if (excess > 0 || leaves_plan) shrink_arenas(excess, leaves_plan ? id : kNoBlock);
  }
  memory = memory_.take(wanted, error);
  if (error == kCudaOutOfMemory && give_back_held() > 0) memory = memory_.take(wanted, error);
  if (error == kCudaOutOfMemory && serve_from_holes(id, reason, address)) return address;
  for (const Bytes enough : {size, DeviceHeap::kEndless}) {  // so many bytes may lie in parts of handles
    if (error != kCudaOutOfMemory) break;
    const bool any_more = shrink_arenas(enough, kNoBlock) > 0;
    if (any_more || (!has_virtual_memory() && give_back() > 0)) memory = memory_.take(wanted, error);
  }
  if (error != kCudaSuccess) {
    locked_.refuse(id);
    return 0;
  }
  address = reinterpret_cast<std::uintptr_t>(memory->address);
  Lock lock(lock_);
  lanes_.adopt(id, address);
  return address;
}

// Bytes that blocks and arenas would have, with a block more, beyond what they may.
Bytes DevicePool::excess(BlockId id, Bytes size) {
  const Bytes most = spare(false);
  Lock lock(lock_);
  const Bytes rise = lanes_.rise(id);
  heap_->note_apart(lanes_.counters().peak_by_stream() + rise);
  return size - rise - most;
}

// Bytes that may come, and a little more, as far as the limit allows.
Bytes DevicePool::spare(bool within_limit) { return std::min(room(within_limit) + a_little(), heap_->room(true, 0)); }

// Bytes by which more may be live than has been at a time: a share, and a page for each arena.
Bytes DevicePool::a_little() {
  Lock lock(lock_);
  return lanes_.counters().peak_by_stream() / kNearly + heap_->page() * static_cast<Bytes>(arenas_.size());
}

// Bytes that may come to arenas and to the heap's blocks; less than 0 where they have more. Memory that one stream is
// done with goes to no other in CuPy's own pool: so what has been live at a time counts by stream. `within_limit`: see
// DeviceHeap::room().
Bytes DevicePool::room(bool within_limit) {
  note_departures();
  const Counters now = locked_.counters();
  const Bytes more = within_limit ? 0 : now.peak_by_stream() - now.peak_live_bytes;
  heap_->note_apart(now.peak_by_stream());
  const Bytes room = heap_->room(within_limit, now.peak_live_bytes);
  return more > 0 ? std::min(room + more, heap_->room(true, 0)) : room;
}

// Takes into the arena what upstream has no memory for, wherever nothing lives.
bool DevicePool::serve_from_holes(BlockId id, Reason reason, std::uintptr_t& address) {
  {
    Lock lock(lock_);
    if (!lanes_.serve_from_holes(id, reason)) return false;
    address = lanes_.range_of(id).begin;
    if (kDebug) lanes_.assert_invariants();
  }
  if (is_shared_) await_issued();
  return true;
}

// ------------------------------------------------------------------------------------------------- held blocks

void DevicePool::hold(BlockId id, const std::vector<Stream>& streams, CudaBlock* memory, bool may_record) {
  const auto held = std::make_shared<Held>();
  held->memory = OwnBlock(memory, {&memory_});
  for (const Stream stream : streams) held->uses.push_back({stream, OwnEvent(nullptr, {&memory_})});
  try {
    if (may_record) record_events(*held);
  } catch (const Refusal&) {
    // Guarded memory waits for the device.
    if (memory != nullptr || make_idle()) return release(id);
  }
  Lock lock(lock_);
  const auto has_event = [](const Use& use) { return use.event != nullptr; };
  const bool recorded = std::all_of(held->uses.begin(), held->uses.end(), has_event);
  held_.emplace(id, held);
  note_held();
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
  note_held();
  lanes_.drop_awaited(granted);
  if (kDebug) lanes_.assert_invariants();
  return awaited;
}

// Has a stream wait for what others do with the blocks whose place it was given. Where it cannot, they are held on.
void DevicePool::wait_for_uses(const std::vector<HeldPtr>& awaited, BlockId granted, Stream stream) {
  try {
    for (const HeldPtr& held : awaited) {
      for (const Use& use : held->uses) memory_.wait(stream, use.event.get());
    }
    waits_to_issue_.fetch_sub(1, std::memory_order_release);
  } catch (const Refusal&) {
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
  const auto all = locked(lock_, [&] { return std::vector<std::pair<BlockId, HeldPtr>>(held_.begin(), held_.end()); });
  if (all.empty() || memory_.is_capturing()) return 0;
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
    if (held->memory != nullptr) held->memory->guarded = false;
    ++settled;
  }
  return settled;
}

// Whether all streams are done with a block. Records the events that were not recorded yet.
bool DevicePool::is_done(Held& held) {
  try {
    record_events(held);
  } catch (const Refusal&) {
    return make_idle();
  }
  const auto is_over = [this](const Use& use) {
    CudaEvent event = event_of(use);
    return event != nullptr && memory_.is_over(event);
  };
  return std::all_of(held.uses.begin(), held.uses.end(), is_over) &&
         std::all_of(held.former.begin(), held.former.end(), [this](const HeldPtr& one) { return is_done(*one); });
}

void DevicePool::record_events(Held& held) {
  for (Use& use : held.uses) {
    if (event_of(use) != nullptr) continue;
    CudaEvent event = nullptr;
    const CudaError error = memory_.record_if_served(event, use.stream);
    if (error != kCudaSuccess && error != kCudaCaptureUnsupported) throw Refusal(error);
    OwnEvent recorded(event, {&memory_});
    Lock lock(lock_);
    if (use.event == nullptr) use.event.swap(recorded);  // else another thread was first
  }
}

// Waits for the device; false: it cannot be waited for now.
bool DevicePool::make_idle() const { return memory_.synchronize() == kCudaSuccess; }

CudaEvent DevicePool::event_of(const Use& use) {
  Lock lock(lock_);
  return use.event.get();
}

}  // namespace stowplan::allocator
