// The events of a heap's streams: recorded, asked, waited for.
#include <new>
#include <utility>

#include "apart.hpp"
#include "device_heap.hpp"

namespace stowplan::allocator {

void DeviceHeap::leave(Stream stream) {
  const Apart apart;
  const std::lock_guard<std::mutex> changing(changing_);
  State state = Holes::kNone;
  {
    const Lock lock(mutex_);
    const auto at = by_stream_.find(stream);
    if (at == by_stream_.end()) return;
    state = at->second;
  }
  {
    const Lock lock(mutex_);
    ++users_.at(state).freed;  // what is freed from now on has this number, too
  }
  CudaEvent last = nullptr;
  if (record(state)) {  // an arena may serve another stream of that handle next
    const Lock lock(mutex_);
    if (users_.at(state).arenas > 0) last = users_.at(state).event;
  }
  if (last != nullptr) api_.checked(api_.event_synchronize(last));
  const Lock lock(mutex_);
  by_stream_.erase(stream);
  users_.at(state).has_left = true;
}

// Records an event that stands for all that a stream has freed; false: there is none.
bool DeviceHeap::record(State state) {
  Stream stream = 0;
  CudaEvent event = nullptr;
  std::uint64_t freed = 0;
  {
    const Lock lock(mutex_);
    User& user = users_.at(state);
    if (user.has_left) return user.recorded != 0;
    user.recorded = 0;
    stream = user.stream;
    event = user.event;
    freed = user.freed;
  }
  const CudaError error = owner_.record(owner_.self, stream, event);
  const Lock lock(mutex_);
  User& user = users_.at(state);
  user.event = event;
  if (error == kCudaSuccess) user.recorded = freed;
  return error == kCudaSuccess;
}

// Asks the events of all streams that something is pending on; records those that there are not yet.
void DeviceHeap::settle() {
  std::vector<std::pair<State, CudaEvent>> pending;
  {
    const Lock lock(mutex_);
    for (auto at = users_.begin(); at != users_.end();) {
      User& user = at->second;
      const bool pends = holes_.has(at->first);
      const bool is_idle = !pends && user.live == 0 && user.asking == 0;
      const bool is_gone = is_idle && (user.has_left || (user.stream < 0 && user.stream != kShared));
      if (pends) pending.emplace_back(at->first, user.recorded != 0 ? user.event : nullptr);
      if (is_gone && !user.has_left) by_stream_.erase(user.stream);
      if (is_gone && user.event != nullptr) gone_.push_back(user.event);
      at = is_gone ? users_.erase(at) : std::next(at);
    }
  }
  for (CudaEvent event : gone_) api_.checked(api_.event_destroy(event));
  gone_.clear();
  for (const auto& [state, event] : pending) {
    if (event != nullptr && api_.checked(api_.event_query(event)) != kCudaSuccess) continue;
    if (event != nullptr && end_uses(state)) continue;
    record(state);
  }
}

// What the event of a stream stands for is over; returns whether nothing else is pending there.
bool DeviceHeap::end_uses(State state) {
  const Lock lock(mutex_);
  User& user = users_.at(state);
  holes_.end_uses(state, user.recorded);
  user.over = std::exchange(user.recorded, 0);
  return !holes_.has(state);
}

// Waits for what one stream may still use; false: there is none that could be waited for.
bool DeviceHeap::await_one() {
  std::vector<std::pair<State, std::uint64_t>> pending;
  {
    const Lock lock(mutex_);
    for (const auto& [state, user] : users_) {
      if (holes_.has(state)) pending.emplace_back(state, user.freed);
    }
  }
  for (const auto& [state, freed] : pending) {
    CudaEvent event = nullptr;
    {
      const Lock lock(mutex_);
      const User& user = users_.at(state);
      event = user.recorded != 0 ? user.event : nullptr;
    }
    if (event == nullptr && !record(state)) continue;
    {
      const Lock lock(mutex_);
      event = users_.at(state).event;
    }
    if (api_.checked(api_.event_synchronize(event)) != kCudaSuccess) continue;
    end_uses(state);
    return true;
  }
  // Streams that have gone.
  if (pending.empty() || owner_.capturing(owner_.self)) return false;
  if (api_.checked(api_.device_synchronize()) != kCudaSuccess) return false;
  const Lock lock(mutex_);
  for (const auto& [state, freed] : pending) {
    holes_.end_uses(state, freed);
    users_.at(state).over = freed;
  }
  return true;
}

}  // namespace stowplan::allocator
