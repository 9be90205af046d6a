#include "device_heap.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "apart.hpp"

namespace stowplan::allocator {

namespace {

void* pointer(Bytes address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

// A thread's own default stream has a number of its own here, and one handle for the driver.
CudaStream handle_of(Stream stream) { return stream_handle(stream < 0 ? kPerThread : stream); }

}  // namespace

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
  for (const auto& [state, user] : users_) {
    if (user.event != nullptr) api_.checked(api_.event_destroy(user.event));
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
  place = {0, (size + kUnit - 1) / kUnit * kUnit, 0, nullptr};
  return place.size <= page_ / 2 ? take_in_page(place, stream) : take_range(place, stream, place.size);
}

CudaError DeviceHeap::take_in_page(Place& place, Stream stream) {
  {
    const Lock lock(mutex_);
    place.stream = user_of(stream);
    if (exceeds_limit(place.size)) return kCudaOutOfMemory;
    if (cut_from_page(place, users_.at(place.stream))) return kCudaSuccess;
  }
  Place page{0, page_, place.stream, nullptr};
  const CudaError error = take_range(page, stream, 0);
  const Lock lock(mutex_);
  if (error != kCudaSuccess) {  // another thread may have made some
    const auto at = users_.find(place.stream);
    return at != users_.end() && cut_from_page(place, at->second) ? kCudaSuccess : error;
  }
  User& user = users_.at(place.stream);
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

CudaError DeviceHeap::take_range(Place& place, Stream stream, Bytes counted) {
  {
    const Lock lock(mutex_);
    place.stream = user_of(stream);
    if (exceeds_limit(counted)) return kCudaOutOfMemory;
    if (take_hole(place, counted)) return kCudaSuccess;
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
  return extend(place, counted);
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

// Takes the smallest hole that has room of the stream's own and those that are anybody's; or of such that touch.
bool DeviceHeap::take_hole(Place& place, Bytes counted) {
  holes_.promise(2);
  const State user = place.stream;
  const auto over = holes_.smallest(Holes::kOver, place.size), own = holes_.smallest(user, place.size);
  auto best = over;
  if (over == holes_.end() || (own != holes_.end() && own->second.end - own->first < over->second.end - over->first)) {
    best = own;
  }
  if (best != holes_.end()) {
    place.address = static_cast<std::uintptr_t>(best->first);
    holes_.take(best, place.size);
    holes_.need_not(1);
    note(place, counted);
    return true;
  }
  Gap found{0, kEndless};
  holes_.each_run([user](State state) { return state == Holes::kOver || state == user; },
                  [&](Holes::Iterator first, Holes::Iterator last) {
                    const Bytes begin = first->first, end = std::prev(last)->second.end;
                    if (end - begin >= place.size && end - begin < found.end - found.begin) found = {begin, end};
                  });
  if (found.begin == 0) {
    holes_.need_not(2);
    return false;
  }
  holes_.cut(found.begin, found.begin + place.size, nullptr);
  place.address = static_cast<std::uintptr_t>(found.begin);
  note(place, counted);
  return true;
}

// Counts a block; its place has a promise.
void DeviceHeap::note(const Place& place, Bytes counted) {
  User& user = users_.at(place.stream);
  live_ += place.size;
  used_ += counted;
  user.live += place.size;
  user.most = std::max(user.most, user.live);
  note_most();
}

void DeviceHeap::note_most() {
  Bytes& live = periods_[period_].live;
  live = std::max(live, live_ + arenas_);
  if (used_ + arenas_ > top_) {
    top_ = used_ + arenas_;
    lost_ = live_ - used_;
  }
  peak_ = std::max(peak_, held_ + arenas_);
}

// A finalizer calls this: a block that the host has no memory to note the end of stays a live one.
void DeviceHeap::give(const Place& place) noexcept try {
  const Lock lock(mutex_);
  auto begin = static_cast<Bytes>(place.address);
  if (place.page == nullptr) {
    used_ -= place.size;
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
  if (!user.has_left) ++user.freed;
  const bool is_over = user.stream == kShared || (user.has_left && user.freed <= user.over);
  holes_.put({begin, begin + size, is_over ? Holes::kOver : state, is_over ? 0 : user.freed});
}

// ------------------------------------------------------------------------------------------------------- the account

// The larger of the two figures that bytes held are measured by, with so many more for a user.
Bytes DeviceHeap::figure(State asking, Bytes asked) {
  Bytes apart = 0;
  for (const auto& [state, user] : users_) {
    const bool asks = state == asking;
    if (asks || user.live > 0 || holes_.has(state)) apart += std::max({user.most, user.most_before, asks ? user.live + asked : Bytes{0}});
  }
  Period& now = periods_[period_];
  now.apart = std::max(now.apart, apart);
  Bytes most = live_ + arenas_ + claimed_ + asked;
  for (const Period& period : periods_) most = std::max({most, period.live, period.apart + arenas_ + claimed_});
  return most;
}

// Bytes that handles may have: by a figure, a share beyond it, and a limit.
Bytes DeviceHeap::allowed(Bytes figure, double share) const {
  const Bytes more = up(static_cast<Bytes>(static_cast<double>(figure) * (1 + share)));
  return std::min(more - arenas_ - claimed_, most_held());
}

// Bytes that handles may have by the limit, which counts blocks: not what shared pages have free, nor one page's rest.
Bytes DeviceHeap::most_held() const {
  return limit_ != 0 ? up(limit_) + page_ + live_ - used_ - arenas_ - claimed_ : kEndless;
}

Bytes DeviceHeap::room(bool within_limit, Bytes live_peak) {
  const Lock lock(mutex_);
  const Bytes lost = live_ - used_;
  const Bytes most = within_limit ? kEndless : live_peak + std::min(lost, lost_);
  const Bytes allowed = limit_ != 0 ? limit_ + lost : kEndless;
  return std::max(std::min(most, allowed) - live_, Bytes{0});
}

void DeviceHeap::note_arenas(Bytes size) {
  {
    const Lock lock(mutex_);
    claimed_ = std::max(size - arenas_, Bytes{0});
    if (claimed_ > 0) {  // what arenas serve from now on, streams do not need here
      for (auto& [state, user] : users_) user.most = user.most_before = user.live;
      for (Period& period : periods_) period.apart = 0;
    }
  }
  make_room();
  const Lock lock(mutex_);
  claimed_ = 0;
  arenas_ = size;
  note_most();
}

void DeviceHeap::begin_step() {
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
    if (period_ == 0) user.most_before = std::exchange(user.most, user.live);
  }
  periods_[period_] = {live_ + arenas_, 0, 0};
}

void DeviceHeap::make_room() {
  {
    const Lock lock(mutex_);
    const bool pends = std::any_of(users_.begin(), users_.end(), [this](const auto& user) { return holes_.has(user.first); });
    if (!pends && held_ <= allowed(figure(Holes::kNone, 0), slack_)) return;
  }
  const Apart apart;
  const std::lock_guard<std::mutex> changing(changing_);
  const OnDevice on(api_, device_);
  const WhileCapturing allows(api_);
  settle();
  for (;;) {
    Bytes more = 0, beyond = 0;
    {
      const Lock lock(mutex_);
      const Bytes most = figure(Holes::kNone, 0);
      more = held_ - allowed(most, slack_);
      beyond = claimed_ > 0 ? held_ - allowed(most, kBound) : 0;
    }
    if (is_virtual()) beyond -= release(more, false);
    if (beyond <= 0 || !await_one()) return;
  }
}

Bytes DeviceHeap::held() {
  const Lock lock(mutex_);
  return held_ + arenas_;
}

Bytes DeviceHeap::peak() {
  const Lock lock(mutex_);
  return peak_;
}

void DeviceHeap::reset_peak() {
  const Lock lock(mutex_);
  peak_ = held_ + arenas_;
}

std::size_t DeviceHeap::free_ranges() {
  const Lock lock(mutex_);
  std::size_t count = 0;
  for (const auto& [begin, hole] : holes_) count += hole.state != Holes::kNone ? 1 : 0;
  return count;
}

// ------------------------------------------------------------------------------------------------- events of streams

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
  record(state);
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

// -------------------------------------------------------------------------------------------------------- growing

CudaError DeviceHeap::extend(Place& place, Bytes counted) {
  const Apart apart;
  const std::lock_guard<std::mutex> changing(changing_);
  const OnDevice on(api_, device_);
  const WhileCapturing allows(api_);
  bool is_long = false;
  {
    const Lock lock(mutex_);
    is_long = ++slow_ >= kSlow;
  }
  if (is_long) begin_step();
  if (is_virtual() && base_ == 0 && !reserve_addresses()) return kCudaOutOfMemory;
  settle();
  Effort effort;
  for (;;) {
    const CudaError error = grow(place, counted, effort);
    if (error == kNotOrdered) {
      effort.orders = false;
    } else if (error != kCudaOutOfMemory && error != kFull) {
      return error;
    } else if (error == kCudaOutOfMemory && !effort.moves_all) {
      effort.moves_all = true;
    } else if (await_one()) {
      continue;
    } else if (error == kFull) {
      if (!is_virtual()) release(up(place.size), true);
      effort.exceeds = true;
    } else if (release(kEndless, true) == 0) {
      return error;
    }
  }
}

bool DeviceHeap::reserve_addresses() {
  if (!memory_.reserve(base_)) return false;
  const Lock lock(mutex_);
  holes_.promise(1);
  holes_.put({base_, base_ + memory_.reach, Holes::kNone, 0});
  return true;
}

// Takes a hole that there is now, or finds a place and gives it memory.
CudaError DeviceHeap::grow(Place& place, Bytes counted, const Effort& effort) {
  Growth growth;
  {
    const Lock lock(mutex_);
    if (take_hole(place, counted)) return kCudaSuccess;
    if (exceeds_limit(counted)) return kCudaOutOfMemory;
    const CudaError error = design(growth, place, effort);
    if (error != kCudaSuccess) return error;
  }
  CudaError error = kCudaSuccess;
  try {
    error = follow(growth, place.stream);
    if (error == kCudaSuccess) error = is_virtual() ? fill(growth, effort.moves_all) : allocate(growth, place.size);
  } catch (const std::bad_alloc&) {
    error = kNoHostMemory;
  }
  for (const Handles::node_type& handle : growth.moving) {  // those that fit in no gap
    if (!growth.is_unmapped) unmap(handle);
    api_.checked(api_.release(handle.mapped().memory));
    growth.more -= handle.mapped().size;
  }
  const Lock lock(mutex_);
  publish(growth, error == kCudaSuccess);
  if (error == kNoHostMemory) throw std::bad_alloc();
  if (error != kCudaSuccess) return error;
  place.address = static_cast<std::uintptr_t>(growth.begin);
  note(place, counted);
  return kCudaSuccess;
}

// Where a block comes to lie, and what is to be done for that; takes it out of the heap. kFull: the bound does not
// allow it, but may when streams have done more.
CudaError DeviceHeap::design(Growth& growth, const Place& place, const Effort& effort) {
  const State user = place.stream;
  const Bytes most = figure(user, place.size), more = is_virtual() ? 0 : up(place.size);
  Lack lack = is_virtual() ? lacking(place.size, [user](State s) { return s == Holes::kOver || s == user; })
                           : Lack{more, 0};
  Bytes room = effort.moves_all ? 0 : std::max(allowed(most, slack_) - held_, Bytes{0});
  if (lack.bytes > room && effort.orders && users_.at(user).stream != kShared) {
    const Lack other = lacking(place.size, [](State s) { return s != Holes::kNone; });
    const Bytes begin = down(lack.begin), end = up(lack.begin + place.size);
    if (other.bytes < lack.bytes && lack.bytes - room > (is_virtual() ? whole_handles(user, begin, end) : 0)) {
      lack = other;
    }
  }
  if (lack.bytes >= kEndless) return kCudaOutOfMemory;
  growth.begin = lack.begin;
  growth.end = lack.begin + place.size;
  growth.most = most;
  Bytes moves = 0;
  std::vector<Bytes> handles;
  if (is_virtual() && lack.bytes > room) {
    handles = idle_handles(lack.bytes - room, true, down(growth.begin), up(growth.end), moves);
  }
  const Bytes fresh = lack.bytes - moves;
  if (fresh > 0 && fresh > most_held() - held_) return kCudaOutOfMemory;
  if (fresh > 0 && fresh > allowed(most, std::max(slack_, kBound)) - held_ && !effort.exceeds) return kFull;
  cut(growth, handles);
  if (!is_virtual() && lack.bytes > 0) growth.gaps.push_back({0, lack.bytes});
  periods_[period_].moved += moves;
  return kCudaSuccess;
}

// Takes a block's place and handles that move there out of the heap.
void DeviceHeap::cut(Growth& growth, const std::vector<Bytes>& handles) {
  if (!is_virtual() && growth.begin == 0) {
    growth.gaps.reserve(1);
    take_promises(growth, 3);
    return;
  }
  std::size_t count = 0;
  std::vector<Gap> gaps;
  for (auto hole = holes_.at_or_after(growth.begin); hole != holes_.end() && hole->first < growth.end; ++hole) {
    ++count;
    if (hole->second.state != Holes::kNone) continue;
    gaps.push_back({std::max(hole->first, down(growth.begin)), std::min(hole->second.end, up(growth.end))});
  }
  growth.parts.reserve(count);
  growth.moving.reserve(handles.size());
  growth.emptied.reserve(handles.size());
  take_promises(growth, 4 * gaps.size() + 2 * handles.size() + count + 4);
  growth.gaps.swap(gaps);
  for (const Gap& gap : growth.gaps) {
    holes_.cut(gap.begin, gap.end, nullptr);
    --growth.promised;
  }
  holes_.cut(growth.begin, growth.end, &growth.parts);
  --growth.promised;
  take_handles(growth, handles);
}

void DeviceHeap::take_promises(Growth& growth, std::size_t count) {
  holes_.promise(count);
  growth.promised += count;
}

// Takes handles whose memory nothing uses out of the heap. Nothing fails: the growth has room, and promises.
void DeviceHeap::take_handles(Growth& growth, const std::vector<Bytes>& handles) noexcept {
  for (const Bytes begin : handles) {
    const Bytes end = begin + handles_.at(begin).size;
    holes_.cut(begin, end, nullptr);
    --growth.promised;
    growth.emptied.push_back({begin, end});
    growth.moving.push_back(handles_.extract(begin));
  }
}

// Where the fewest bytes lack memory, in whole pages, among holes that `is_fit` accepts and those without memory.
template <class IsFit>
DeviceHeap::Lack DeviceHeap::lacking(Bytes size, IsFit&& is_fit) const {
  Lack best;
  const auto look = [&](Bytes at, Holes::Iterator hole, Holes::Iterator last) {
    Bytes lacks = 0;
    for (; hole != last && hole->first < at + size; ++hole) {
      if (hole->second.state != Holes::kNone || hole->second.end <= at) continue;
      lacks += std::min(hole->second.end, up(at + size)) - std::max(hole->first, down(at));
    }
    if (std::pair(lacks, at) < std::pair(best.bytes, best.begin)) best = {lacks, at};
  };
  holes_.each_run([&](State state) { return state == Holes::kNone || is_fit(state); },
                  [&](Holes::Iterator first, Holes::Iterator last) {
                    const Bytes begin = first->first, end = std::prev(last)->second.end;
                    if (end - begin < size) return;
                    look(begin, first, last);
                    for (auto hole = first; hole != last; ++hole) {
                      if (hole->second.state == Holes::kNone) continue;
                      if (hole->first + size <= end) look(hole->first, hole, last);
                      look(std::max(begin, hole->second.end - size), first, last);
                    }
                  });
  return best;
}

// Bytes of whole handles that a stream could give, but for those in a range.
Bytes DeviceHeap::whole_handles(State user, Bytes begin, Bytes end) const {
  Bytes bytes = 0;
  holes_.each_run([user](State state) { return state == Holes::kOver || state == user; },
                  [&](Holes::Iterator first, Holes::Iterator last) {
                    const Bytes from = first->first, to = std::prev(last)->second.end;
                    for (auto at = handles_.lower_bound(from); at != handles_.end() && at->first < to; ++at) {
                      const Bytes ends = at->first + at->second.size;
                      if (ends <= to && (ends <= begin || at->first >= end)) bytes += at->second.size;
                    }
                  });
  return bytes;
}

// Handles in holes that are anybody's, the smallest holes first: so many bytes of them, or just more, or just fewer.
std::vector<Bytes> DeviceHeap::idle_handles(Bytes bytes, bool or_more, Bytes begin, Bytes end, Bytes& found) const {
  std::vector<Bytes> handles;
  found = 0;
  holes_.each_of(Holes::kOver, [&](Bytes from, Bytes to) {
    for (auto at = handles_.lower_bound(to); at != handles_.begin();) {
      --at;
      const Bytes size = at->second.size, ends = at->first + size;
      if (at->first < from || found >= bytes) break;
      const bool is_whole = ends <= to && (ends <= begin || at->first >= end);
      if (!is_whole || (!or_more && size > bytes - found)) continue;
      handles.push_back(at->first);
      found += size;
    }
  });
  return handles;
}

// Has the stream of a block wait for what others may still do with its place.
CudaError DeviceHeap::follow(const Growth& growth, State user) {
  std::map<State, std::uint64_t> others;
  for (const Holes::Part& part : growth.parts) {
    if (part.state == Holes::kOver || part.state == user) continue;
    std::uint64_t& number = others[part.state];
    number = std::max(number, part.number);
  }
  for (const auto& [state, number] : others) {
    bool is_recorded = false;
    CudaEvent event = nullptr;
    {
      const Lock lock(mutex_);
      is_recorded = users_.at(state).recorded >= number;
    }
    if (!is_recorded && !record(state)) return kNotOrdered;
    Stream stream = 0;
    {
      const Lock lock(mutex_);
      event = users_.at(state).event;
      stream = users_.at(user).stream;
    }
    if (api_.checked(api_.stream_wait_event(handle_of(stream), event, 0)) != kCudaSuccess) return kNotOrdered;
  }
  return kCudaSuccess;
}

// Gives all gaps memory: of handles that move, and new ones.
CudaError DeviceHeap::fill(Growth& growth, bool moves_all) {
  for (const Handles::node_type& handle : growth.moving) unmap(handle);
  growth.is_unmapped = true;
  for (const Gap& gap : growth.gaps) {
    if (const CudaError error = fill_gap(growth, gap, moves_all); error != kCudaSuccess) return error;
  }
  return kCudaSuccess;
}

void DeviceHeap::unmap(const Handles::node_type& handle) const {
  api_.checked(api_.unmap(pointer(handle.key()), static_cast<std::size_t>(handle.mapped().size)));
}

CudaError DeviceHeap::fill_gap(Growth& growth, const Gap& gap, bool moves_all) {
  CudaError error = kCudaSuccess;
  Bytes at = gap.begin;
  while (at < gap.end && error == kCudaSuccess) {
    Handles::node_type handle;
    error = take_handle(growth, gap.end - at, moves_all, handle);
    if (error != kCudaSuccess) break;
    const Bytes size = handle.mapped().size;
    error = api_.checked(api_.map(pointer(at), static_cast<std::size_t>(size), 0, handle.mapped().memory, 0));
    if (error == kCudaSuccess) {
      handle.key() = at;
      growth.placed.insert(std::move(handle));
      at += size;
    } else {
      api_.checked(api_.release(handle.mapped().memory));
      growth.more -= size;
    }
  }
  if (error == kCudaSuccess) error = memory_.open(gap.begin, gap.end - gap.begin);
  if (error == kCudaSuccess) return error;
  for (auto placed = growth.placed.lower_bound(gap.begin); placed != growth.placed.end() && placed->first < at;) {
    drop(placed->first, placed->second);
    growth.more -= placed->second.size;
    placed = growth.placed.erase(placed);
  }
  return error;
}

// The largest handle that moves and has at most so many bytes, or else a new one.
CudaError DeviceHeap::take_handle(Growth& growth, Bytes most, bool moves_all, Handles::node_type& handle) try {
  auto best = growth.moving.end();
  for (auto at = growth.moving.begin(); at != growth.moving.end(); ++at) {
    const bool is_better = best == growth.moving.end() || at->mapped().size > best->mapped().size;
    if (at->mapped().size <= most && is_better) best = at;
  }
  if (best != growth.moving.end()) {
    handle = std::move(*best);
    growth.moving.erase(best);
    return kCudaSuccess;
  }
  if (moves_all && !growth.moving.empty()) {  // there may be no room for both
    api_.checked(api_.release(growth.moving.back().mapped().memory));
    growth.more -= growth.moving.back().mapped().size;
    growth.moving.pop_back();
  }
  const Bytes size = std::min({most, kMost, up(std::max(growth.most / kShare, page_))});
  Handles one{{0, {size, 0}}};
  const CudaError error = memory_.make(one.begin()->second.memory, size);
  if (error != kCudaSuccess) return error;
  growth.more += size;
  handle = one.extract(one.begin());
  return kCudaSuccess;
} catch (const std::bad_alloc&) {
  return kNoHostMemory;
}

// Without virtual memory: a range of the driver's own.
CudaError DeviceHeap::allocate(Growth& growth, Bytes size) {
  if (growth.gaps.empty()) return kCudaSuccess;
  const Bytes whole = growth.gaps.front().end;
  Handles one{{0, {whole, 0}}};
  void* found = nullptr;
  const CudaError error = api_.checked(api_.malloc(&found, static_cast<std::size_t>(whole)));
  if (error != kCudaSuccess) {
    growth.gaps.clear();
    return error;
  }
  const auto begin = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(found));
  try {
    const Lock lock(mutex_);
    holes_.add_border(begin);
  } catch (const std::bad_alloc&) {
    api_.checked(api_.free(found));
    growth.gaps.clear();
    throw;
  }
  growth.begin = begin;
  growth.end = begin + size;
  growth.gaps.front() = {begin, begin + whole};
  growth.more = whole;
  auto handle = one.extract(one.begin());
  handle.key() = begin;
  growth.placed.insert(std::move(handle));
  return kCudaSuccess;
}

// Puts what was taken out back into the heap; the block's place is its own if all was done.
void DeviceHeap::publish(Growth& growth, bool is_done) noexcept {
  const auto put = [&](Bytes begin, Bytes end, State state, std::uint64_t number) {
    if (begin >= end) return;
    holes_.put({begin, end, state, number});
    --growth.promised;
  };
  for (const Gap& gap : growth.emptied) put(gap.begin, gap.end, Holes::kNone, 0);
  for (const Gap& gap : growth.gaps) {
    const State state = growth.placed.count(gap.begin) != 0 ? Holes::kOver : Holes::kNone;
    put(gap.begin, is_done ? std::min(gap.end, growth.begin) : gap.end, state, 0);
    if (is_done) put(std::max(gap.begin, growth.end), gap.end, state, 0);
  }
  for (const Holes::Part& part : growth.parts) {
    if (!is_done) put(part.begin, part.end, part.state, part.number);
  }
  handles_.merge(growth.placed);
  held_ += growth.more;
  holes_.need_not(is_done ? growth.promised - 1 : growth.promised);  // one is the block's
}

// ----------------------------------------------------------------------------------------------------- giving back

void DeviceHeap::trim() {
  const Apart apart;
  const std::lock_guard<std::mutex> changing(changing_);
  const OnDevice on(api_, device_);
  const WhileCapturing allows(api_);
  settle();
  std::size_t streams = 0;
  {
    const Lock lock(mutex_);
    streams = users_.size();
  }
  for (std::size_t i = 0; i <= streams && await_one(); ++i) continue;
  release(kEndless, true);
}

// Gives handles that nothing uses back to the device: so many bytes, or just fewer, or just more; returns how many.
Bytes DeviceHeap::release(Bytes bytes, bool or_more) {
  if (bytes <= 0 || (!is_virtual() && owner_.capturing(owner_.self))) return 0;
  Growth growth;
  Bytes found = 0;
  {
    const Lock lock(mutex_);
    const std::vector<Bytes> handles = idle_handles(bytes, or_more, 0, 0, found);
    if (handles.empty()) return 0;
    growth.moving.reserve(handles.size());
    growth.emptied.reserve(handles.size());
    take_promises(growth, 2 * handles.size() + 1);
    take_handles(growth, handles);
  }
  for (const Handles::node_type& handle : growth.moving) drop(handle.key(), handle.mapped());
  growth.more = -found;
  const Lock lock(mutex_);
  if (!is_virtual()) {
    for (const Gap& gap : growth.emptied) holes_.remove_border(gap.begin);
    growth.emptied.clear();
  }
  publish(growth, false);
  return found;
}

void DeviceHeap::drop(Bytes address, const Handle& handle) const {
  if (!is_virtual()) {
    api_.checked(api_.free(pointer(address)));
    return;
  }
  api_.checked(api_.unmap(pointer(address), static_cast<std::size_t>(handle.size)));
  api_.checked(api_.release(handle.memory));
}

}  // namespace stowplan::allocator
