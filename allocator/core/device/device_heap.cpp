#include "device_heap.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace stowplan::allocator {

// The process may outlive its device, so errors of the driver are ignored here. What streams may still use stays.
DeviceHeap::~DeviceHeap() {
  try {
    trim();
  } catch (const std::bad_alloc&) {
    return;
  }
  const Apart apart;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  for (CudaEvent event : events_) {
    if (event != nullptr) api_.checked(api_.event_destroy(event));
  }
  if (base_ != 0 && handles_.empty()) memory_.unreserve(base_);
}

void DeviceHeap::use(const VirtualMemory& memory) {
  const Bytes page = memory.page();
  if (page == 0) return;
  memory_ = memory;
  page_ = page;
}

// --------------------------------------------------------------------------------------------- requests and frees

CudaError DeviceHeap::take(Bytes size, Stream stream, Place& place) {
  if (size > kEndless) return kCudaOutOfMemory;
  if (stream != kShared && wants_mark_) retry_mark();
  const Bytes rounded = (size + kUnit - 1) / kUnit * kUnit;
  place = {0, rounded, rounded, 0, nullptr};
  if (place.size <= page_ / 2) return take_in_page(place, stream);
  if (has_steps_ && is_virtual()) place.size = locked(mutex_, [&] { return in_pages(rounded); });
  return take_range(place, stream);
}

CudaError DeviceHeap::take_in_page(Place& place, Stream stream) {
  {
    const Lock lock(mutex_);
    place.stream = user_of(stream);
    if (exceeds_limit(place.size)) return kCudaOutOfMemory;
    if (cut_from_page(place, users_.at(place.stream))) return kCudaSuccess;
  }
  Place page{0, page_, 0, place.stream, nullptr};
  const CudaError error = take_range(page, stream);
  const Lock lock(mutex_);
  if (error != kCudaSuccess) {  // another thread may have made some
    const auto at = users_.find(place.stream);
    return at != users_.end() && cut_from_page(place, at->second) ? kCudaSuccess : error;
  }
  place.stream = page.stream;  // another one, if the program has dropped the stream meanwhile
  User& user = users_.at(place.stream);
  if (cut_from_page(place, user)) {  // of one that another thread has taken meanwhile: nothing would lie in this one
    put_back(static_cast<Bytes>(page.address), page_, page.stream);
    return kCudaSuccess;
  }
  try {
    user.pages.add(page.address, page_);
  } catch (const std::bad_alloc&) {
    put_back(static_cast<Bytes>(page.address), page_, page.stream);
    throw;
  }
  cut_from_page(place, user);
  return kCudaSuccess;
}

// Takes a place in the first page of the stream that has room.
bool DeviceHeap::cut_from_page(Place& place, User& user) {
  const auto [page, offset] = user.pages.take(place.size);
  if (page == nullptr) return false;
  place.page = page;
  place.address = page->address + static_cast<std::uintptr_t>(offset);
  used_ += place.size;
  note_most();
  return true;
}

CudaError DeviceHeap::take_range(Place& place, Stream stream) {
  {
    const Lock lock(mutex_);
    place.stream = user_of(stream);
    if (exceeds_limit(place.used)) return kCudaOutOfMemory;
    periods_[period_].is_asked = true;
    if (take_hole(place)) return kCudaSuccess;
    ++users_.at(place.stream).asking;
  }
  struct Asking {
    DeviceHeap& heap;
    State user;
    ~Asking() {
      const Lock lock(heap.mutex_);
      --heap.users_.at(user).asking;
    }
  } const asking{*this, place.stream};
  return extend(place);
}

DeviceHeap::State DeviceHeap::user_of(Stream stream) {
  const auto at = by_stream_.find(stream);
  if (at != by_stream_.end()) return at->second;
  const State state = next_user_;
  const auto user = users_.try_emplace(state).first;
  user->second.stream = stream;
  try {
    by_stream_.emplace(stream, state);
  } catch (const std::bad_alloc&) {
    users_.erase(user);
    throw;
  }
  ++next_user_;
  return state;
}

// The smallest hole of a state that has room.
Holes::Iterator DeviceHeap::smallest(State state, Bytes size) const {
  const auto hole = holes_.smallest(state, size);
  const bool fits = hole == holes_.end() || aligned(hole->first, size) + size <= hole->second.end;
  return fits ? hole : holes_.smallest(state, size + page_);
}

// Takes the smallest hole that has room of the stream's own and those that are anybody's; or of such that touch.
bool DeviceHeap::take_hole(Place& place) {
  const State user = place.stream;
  holes_.promise(2);
  const auto over = smallest(Holes::kOver, place.size), own = smallest(user, place.size);
  auto best = over;
  if (over == holes_.end() || (own != holes_.end() && own->second.end - own->first < over->second.end - over->first)) {
    best = own;
  }
  Part found{best != holes_.end() ? aligned(best->first, place.size) : 0, kEndless};
  if (found.begin == 0)
    holes_.each_run([user](State state) { return state == Holes::kOver || state == user; },
                    [&](Holes::Iterator first, Holes::Iterator last) {
                      const Bytes begin = aligned(first->first, place.size), end = std::prev(last)->second.end;
                      if (end - begin >= place.size && end - begin < found.end - found.begin) found = {begin, end};
                    });
  if (found.begin == 0) {
    holes_.need_not(2);
    return false;
  }
  holes_.cut(found.begin, found.begin + place.size, nullptr);
  place.address = static_cast<std::uintptr_t>(found.begin);
  note(place);
  return true;
}

// What a block takes where plans will want memory: whole pages, which can move, as long as little is lost by that.
Bytes DeviceHeap::in_pages(Bytes size) const {
  return rounding_ + up(size) - size <= std::max(top_ / kLittle, page_) ? up(size) : size;
}

// Counts a block; its place has a promise.
void DeviceHeap::note(const Place& place) {
  live_ += place.size;
  if (place.used != 0) rounding_ += place.size - place.used;
  used_ += place.used;
  count(place.stream, place.size);
  note_most();
}

void DeviceHeap::count(State state, Bytes bytes) {
  User& user = users_.at(state);
  user.live += bytes;
  user.most = std::max(user.most, user.live);
  user.most_blocks = std::max(user.most_blocks, user.live - user.arenas);
}

void DeviceHeap::note_most() {
  Bytes& live = periods_[period_].live;
  live = std::max(live, live_);
  if (used_ > top_) {
    top_ = used_;
    lost_ = live_ - used_;
  }
  peak_ = std::max(peak_, held_);
}

// A finalizer calls this: a block that the host has no memory to note the end of stays a live one.
void DeviceHeap::give(const Place& place) noexcept try {
  const Lock lock(mutex_);
  auto begin = static_cast<Bytes>(place.address);
  if (place.page == nullptr) {
    used_ -= place.used;
    rounding_ -= place.size - place.used;
    return put_back(begin, place.size, place.stream);
  }
  begin = static_cast<Bytes>(place.page->address);
  const bool is_last =
      users_.at(place.stream).pages.give(place.page, static_cast<Bytes>(place.address) - begin, place.size);
  used_ -= place.size;
  if (is_last) put_back(begin, page_, place.stream);
} catch (const std::bad_alloc&) {
}

void DeviceHeap::put_back(Bytes begin, Bytes size, State state) noexcept {
  User& user = users_.at(state);
  live_ -= size;
  user.live -= size;
  const bool is_over = user.stream == kShared;
  holes_.put({begin, begin + size, is_over ? Holes::kOver : state, is_over ? 0 : ++freed_});
}

// ------------------------------------------------------------------------------------------------------- the account

// The larger of the two figures that bytes held are measured by, with so many more for a user. These count in later
// periods if they are served.
Bytes DeviceHeap::figure(State asking, Bytes asked) {
  // What a user has had live at most. An arena is as it is now: what it had at another time may be blocks' at present.
  const auto most_of = [](const User& user, Bytes live) {
    const Bytes blocks = std::max({user.most_blocks, user.most_blocks_before, live - user.arenas});
    return std::min(std::max({user.most, user.most_before, live}), user.arenas + blocks);
  };
  Bytes apart = 0, more = 0;
  for (const auto& [state, user] : users_) {
    const bool overlaps = user.live > 0 || (!user.has_left && holes_.has(state));
    const Bytes most = overlaps ? most_of(user, user.live) : 0;
    apart += most;
    if (state == asking) more = most_of(user, user.live + asked) - most;
  }
  const Bytes rounding = live_ - used_ + page_ * static_cast<Bytes>(users_.size());
  Period& now = periods_[period_];
  now.apart = std::max(now.apart, std::min(apart, apart_ + rounding));
  Bytes most = std::max(live_ + asked, std::min(apart + more, apart_ + rounding));
  for (const Period& period : periods_) most = std::max({most, period.live, period.apart});
  return most;
}

// Bytes that handles may have: by a figure, a share beyond it, and a limit.
Bytes DeviceHeap::allowed(Bytes figure, double share) const {
  const Bytes more = up(static_cast<Bytes>(static_cast<double>(figure) * (1 + share)));
  return std::min(more, most_held());
}

// Bytes that handles may have by the limit, which counts blocks: not what shared pages have free.
Bytes DeviceHeap::most_held() const { return limit_ != 0 ? up(limit_) + live_ - used_ : kEndless; }

Bytes DeviceHeap::room(bool within_limit, Bytes live_peak) {
  const Lock lock(mutex_);
  const Bytes lost = live_ - used_;
  const Bytes most = within_limit ? kEndless : live_peak + std::min(lost, lost_);
  const Bytes allowed = limit_ != 0 ? limit_ + lost : kEndless;
  return std::max(std::min(most, allowed) - (live_ - arenas_), Bytes{0}) - arenas_;
}

bool DeviceHeap::has_hole(Bytes size, Stream stream) {
  const Lock lock(mutex_);
  size = size <= page_ / 2 ? page_ : has_steps_ && is_virtual() ? in_pages(size) : size;
  const auto at = by_stream_.find(stream);
  return smallest(Holes::kOver, size) != holes_.end() ||
         (at != by_stream_.end() && smallest(at->second, size) != holes_.end());
}

void DeviceHeap::begin_step() {
  has_steps_ = true;
  begin_period();
}

void DeviceHeap::begin_period() {
  const Lock lock(mutex_);
  slow_ = 0;
  Bytes moved = 0;
  for (std::size_t i = 0; i < kPeriods / 2; ++i) moved += periods_[(period_ + kPeriods - i) % kPeriods].moved;
  if (static_cast<double>(moved) > kMuch * static_cast<double>(figure(Holes::kNone, 0))) {
    slack_ = std::min(2 * slack_, kBound);
    for (Period& period : periods_) period.moved = 0;
  }
  period_ = (period_ + 1) % kPeriods;
  for (auto& [state, user] : users_) {
    if (period_ != 0) continue;
    user.most_before = std::exchange(user.most, user.live);
    user.most_blocks_before = std::exchange(user.most_blocks, user.live - user.arenas);
  }
  periods_[period_] = {live_, 0, 0, false};
}

// Bytes that are kept from step to step. Where two periods have asked for no blocks, what was live in them.
Bytes DeviceHeap::most_kept() {
  Bytes live = live_;
  bool is_asked = false;
  for (std::size_t i = 1; i <= 2; ++i) {
    const Period& period = periods_[(period_ + kPeriods - i) % kPeriods];
    live = std::max(live, period.live);
    is_asked = is_asked || period.is_asked;
  }
  return is_asked ? allowed(figure(Holes::kNone, 0), slack_) : allowed(live, 0);
}

void DeviceHeap::make_room() {
  {
    const Lock lock(mutex_);
    const bool pends =
        std::any_of(users_.begin(), users_.end(), [this](const auto& user) { return holes_.has(user.first); });
    if (!pends && held_ <= most_kept()) return;
  }
  const Driving driving(*this);
  settle();
  const Bytes more = locked(mutex_, [&] { return held_ - most_kept(); });
  if (is_virtual()) release(more, false);
}

std::size_t DeviceHeap::free_ranges() {
  const Lock lock(mutex_);
  std::size_t count = 0;
  for (const auto& [begin, hole] : holes_) count += Holes::has_memory(hole.state) ? 1 : 0;
  return count;
}

}  // namespace stowplan::allocator
