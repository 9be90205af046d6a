// How a heap gets memory where a request finds no hole, and gives it back: what calls the driver.
#include <algorithm>
#include <new>
#include <utility>

#include "device_heap.hpp"

namespace stowplan::allocator {

CudaError DeviceHeap::extend(Place& place) {
  const Driving driving(*this);
  if (locked(mutex_, [&] { return ++slow_ >= kSlow; })) begin_period();
  if (is_virtual() && base_ == 0 && !reserve_addresses()) return kCudaOutOfMemory;
  settle();
  Effort effort;
  CudaError error = grow(place, effort);
  while (tries_more(effort, error, place.size)) error = grow(place, effort);
  return error;
}

// After an error: whether there is more to be done for a request, which is done then.
bool DeviceHeap::tries_more(Effort& effort, CudaError error, Bytes size) {
  if (error == kNotOrdered) {
    effort.orders = false;
    return true;
  }
  if (error == kCudaOutOfMemory && !effort.moves_all) {
    effort.moves_all = true;
    return true;
  }
  if (error != kCudaOutOfMemory && error != kFull) return false;
  if (await_one()) return true;
  if (error == kCudaOutOfMemory) return release(kEndless, true) > 0;
  if (!is_virtual()) release(up(size), true);
  effort.exceeds = true;
  return true;
}

bool DeviceHeap::reserve_addresses() {
  if (!memory_.reserve(base_)) return false;
  const Lock lock(mutex_);
  holes_.promise(1);
  holes_.put({base_, base_ + memory_.reach, Holes::kNone, 0});
  return true;
}

// Takes a hole that there is now, or finds a place and gives it memory.
CudaError DeviceHeap::grow(Place& place, const Effort& effort) {
  Growth growth;
  {
    const Lock lock(mutex_);
    if (take_hole(place)) return kCudaSuccess;
    if (exceeds_limit(place.used)) return kCudaOutOfMemory;
    const CudaError error = design(growth, place, effort);
    if (error != kCudaSuccess) return error;
  }
  const CudaError error = carry_out(growth, place.stream, effort.moves_all);
  if (error != kCudaSuccess) return error;
  const Lock lock(mutex_);
  place.address = static_cast<std::uintptr_t>(growth.begin);
  note(place);
  return kCudaSuccess;
}

// Does what has been designed; the place is its user's, by a promise, if all was done.
CudaError DeviceHeap::carry_out(Growth& growth, State user, bool moves_all) {
  CudaError error = kCudaSuccess;
  try {
    error = follow(growth, user);
    if (error == kCudaSuccess) error = is_virtual() ? fill(growth, moves_all) : allocate(growth);
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
  return error;
}

// Has the stream of a block wait for what others may still do with its place.
CudaError DeviceHeap::follow(const Growth& growth, State user) {
  std::uint64_t number = 0;
  for (const Part& part : growth.parts) {
    if (part.state != Holes::kOver && part.state != user) number = std::max(number, part.number);
  }
  if (number == 0) return kCudaSuccess;
  const Stream stream = locked(mutex_, [&] { return users_.at(user).stream; });
  if (stream == kShared || (marked_ < number && !mark())) return kNotOrdered;  // no stream that could wait
  if (owner_.end_left(false) != kCudaSuccess) return kNotOrdered;
  for (std::size_t i = 0; i < used_events_; ++i) {
    if (owner_.order(stream, events_[i]) != kCudaSuccess) return kNotOrdered;
  }
  return kCudaSuccess;
}

// Gives all gaps memory: of handles that move, and new ones.
CudaError DeviceHeap::fill(Growth& growth, bool moves_all) {
  for (const Handles::node_type& handle : growth.moving) unmap(handle);
  growth.is_unmapped = true;
  for (const Part& gap : growth.gaps) {
    if (const CudaError error = fill_gap(growth, gap, moves_all); error != kCudaSuccess) return error;
  }
  return kCudaSuccess;
}

void DeviceHeap::unmap(const Handles::node_type& handle) const {
  api_.checked(api_.unmap(pointer(handle.key()), static_cast<std::size_t>(handle.mapped().size)));
}

CudaError DeviceHeap::fill_gap(Growth& growth, const Part& gap, bool moves_all) {
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
CudaError DeviceHeap::allocate(Growth& growth) {
  const Bytes size = growth.end - growth.begin;
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
  for (const Part& gap : growth.emptied) put(gap.begin, gap.end, Holes::kNone, 0);
  for (const Part& gap : growth.gaps) {
    const State state = growth.placed.count(gap.begin) != 0 ? Holes::kOver : gap.state;
    put(gap.begin, is_done ? std::min(gap.end, growth.begin) : gap.end, state, 0);
    if (is_done) put(std::max(gap.begin, growth.end), gap.end, state, 0);
  }
  for (const Part& part : growth.parts) {
    if (!is_done) put(part.begin, part.end, part.state, part.number);
  }
  handles_.merge(growth.placed);
  held_ += growth.more;
  holes_.need_not(is_done ? growth.promised - 1 : growth.promised);  // one is the block's
}

// ----------------------------------------------------------------------------------------------------- giving back

void DeviceHeap::trim() {
  if (held() == 0) return;  // nor is there a context on the device, perhaps
  const Driving driving(*this);
  settle();
  for (int i = 0; i < 2 && await_one(); ++i) continue;  // for the mark that is under way, and then for the rest
  release(kEndless, true);
}

// Gives handles that nothing uses back to the device: so many bytes, or just fewer, or just more; returns how many.
Bytes DeviceHeap::release(Bytes bytes, bool or_more) {
  if (bytes <= 0 || (!is_virtual() && owner_.is_capturing())) return 0;
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
    for (const Part& gap : growth.emptied) holes_.remove_border(gap.begin);
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
