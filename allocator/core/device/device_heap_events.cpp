// When what has been freed is anybody's. A mark is a set of events, one on each stream, with the number of the last
// free before them: a block may have been read on other streams than its own, whose end nothing else says. One mark is
// under way at a time.
#include <algorithm>
#include <utility>

#include "device_heap.hpp"

namespace stowplan::allocator {

void DeviceHeap::leave(Stream stream, CudaEvent last) {
  const Apart apart;
  const std::lock_guard<std::mutex> changing(changing_);
  bool has_arena = false;
  {
    const Lock lock(mutex_);
    const auto at = by_stream_.find(stream);
    if (at == by_stream_.end()) return;
    has_arena = users_.at(at->second).arenas > 0;  // which may serve another stream of that handle next
  }
  if (has_arena && last != nullptr) api_.checked(api_.event_synchronize(last));
  const Lock lock(mutex_);
  const auto at = by_stream_.find(stream);
  users_.at(at->second).has_left = true;
  by_stream_.erase(at);
}

// Has a mark stand behind all frees so far; false: a stream takes no event now.
bool DeviceHeap::mark() {
  const std::uint64_t freed = locked(mutex_, [&] { return freed_; });
  marked_ = 0;
  if (owner_.mark(events_, used_events_) != kCudaSuccess) return false;
  marked_ = freed;
  return true;
}

// What the mark stands for is over, if all its events are; or waits for them.
bool DeviceHeap::end_mark(bool waits) {
  if (marked_ == 0 || owner_.end_left(waits) != kCudaSuccess) return false;
  for (std::size_t i = 0; i < used_events_; ++i) {
    if (api_.checked(waits ? api_.event_synchronize(events_[i]) : api_.event_query(events_[i])) != kCudaSuccess) {
      return false;
    }
  }
  end_uses(std::exchange(marked_, 0));
  return true;
}

// All that was freed up to a number is anybody's.
void DeviceHeap::end_uses(std::uint64_t number) {
  const Lock lock(mutex_);
  for (const auto& [state, user] : users_) holes_.end_uses(state, number);
}

// Asks the mark that is under way; makes another one for what is pending.
void DeviceHeap::settle() {
  end_mark(false);
  bool pends = false, is_alone = false;
  {
    const Lock lock(mutex_);
    for (auto at = users_.begin(); at != users_.end();) {
      const User& user = at->second;
      const bool has_holes = holes_.has(at->first);
      const bool is_idle = !has_holes && user.live == 0 && user.asking == 0;
      const bool is_gone = is_idle && (user.has_left || (user.stream < 0 && user.stream != kShared));
      pends = pends || has_holes;
      if (is_gone && !user.has_left) by_stream_.erase(user.stream);
      at = is_gone ? users_.erase(at) : std::next(at);
    }
    is_alone = users_.size() == 1 && !has_steps_;
  }
  if (!pends || marked_ != 0) return;
  wants_mark_ = !mark();
  // All streams are idle. A program on one stream may use what it has freed as it is: no handle moves.
  if (used_events_ == 0 && !is_alone) end_mark(false);
}

// A program may find no hole in its captures alone, where no mark can be made: so the next request makes it.
void DeviceHeap::retry_mark() {
  const Driving driving(*this);
  settle();
}

// Waits until something that is pending is over; false: there is nothing that could be waited for.
bool DeviceHeap::await_one() {
  std::uint64_t freed = 0;
  {
    const Lock lock(mutex_);
    const auto pends = [this](const auto& user) { return holes_.has(user.first); };
    if (std::none_of(users_.begin(), users_.end(), pends)) return false;
    freed = freed_;
  }
  if (end_mark(true)) return true;
  if (owner_.synchronize() != kCudaSuccess) return false;
  end_uses(freed);
  return true;
}

}  // namespace stowplan::allocator
