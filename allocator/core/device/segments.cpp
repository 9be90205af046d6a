#include "segments.hpp"

#include <algorithm>
#include <new>

#include "apart.hpp"

namespace stowplan::allocator {

// The process may outlive its device, so errors of the driver are ignored here.
Segments::~Segments() {
  for (const Free& segment : free_) free_device(segment.address);
}

CudaError Segments::take(Bytes size, Stream stream, Place& place) {
  if (size > kEndless) return kCudaOutOfMemory;
  place = {0, (size + kUnit - 1) / kUnit * kUnit, stream, nullptr};
  if (place.size <= page_ / 2) return take_in_page(place);
  const Bytes whole = in_pages(place.size);
  const CudaError error = segment({stream, whole}, place.size, place.address);
  const Lock lock(mutex_);
  if (error == kCudaSuccess) ends_ += whole - place.size;
  return error;
}

CudaError Segments::take_in_page(Place& place) {
  if (!keep_limit(place.size)) return kCudaOutOfMemory;
  {
    const Lock lock(mutex_);
    if (fits(place.size) && cut(place)) return kCudaSuccess;
  }
  std::uintptr_t address = 0;
  const CudaError error = segment({place.stream, page_}, place.size, address);
  {
    const Lock lock(mutex_);
    // Another thread, or a finalizer, may have made some.
    const bool has_room = (error == kCudaSuccess || fits(place.size)) && cut(place);
    if (error != kCudaSuccess) return has_room ? kCudaSuccess : error;
    if (!has_room && add_page(place, address)) return kCudaSuccess;
    if (keep({place.stream, page_}, address)) return has_room ? kCudaSuccess : kCudaOutOfMemory;
  }
  drop({place.stream, page_}, address);
  return place.page != nullptr ? kCudaSuccess : kCudaOutOfMemory;
}

// Takes a place in a page more, of this segment; false: the host has no memory to note it.
bool Segments::add_page(Place& place, std::uintptr_t address) try {
  pages_[place.stream].add(address, page_);
  holes_ += page_;
  return cut(place);
} catch (const std::bad_alloc&) {
  return false;
}

// Takes a place in the first page of the stream that has room.
bool Segments::cut(Place& place) {
  const auto [page, offset] = pages_[place.stream].take(place.size);
  if (page == nullptr) return false;
  place.page = page;
  place.address = page->address + static_cast<std::uintptr_t>(offset);
  holes_ -= place.size;
  note_most();
  return true;
}

CudaError Segments::segment(Key key, Bytes asked, std::uintptr_t& address) {
  const Bytes size = key.second;
  {
    const Lock lock(mutex_);
    if (fits(asked - size) && reuse(key, address)) {
      note(size);
      return kCudaSuccess;
    }
    claimed_ += size;
    claimed_ends_ += size - asked;
  }
  make_room();
  const CudaError error = keep_limit(0) ? ask_device(size, address) : kCudaOutOfMemory;
  const Lock lock(mutex_);
  claimed_ -= size;
  claimed_ends_ -= size - asked;
  if (error == kCudaSuccess) {
    ++taken_;
    note(size);
  }
  return error;
}

CudaError Segments::ask_device(Bytes size, std::uintptr_t& address) const {
  const Apart apart;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  void* found = nullptr;
  const CudaError error = api_.checked(api_.malloc(&found, static_cast<std::size_t>(size)));
  address = reinterpret_cast<std::uintptr_t>(found);
  return error;
}

// Takes the segment of this size and stream that was freed last.
bool Segments::reuse(Key key, std::uintptr_t& address) {
  auto at = free_by_key_.upper_bound(key);
  if (at == free_by_key_.begin()) return false;
  --at;
  if (at->first != key) return false;
  address = at->second->address;
  kept_ -= key.second;
  free_.erase(at->second);
  free_by_key_.erase(at);
  return true;
}

// A finalizer calls this: a block that the host has no memory to note the end of stays a live one.
void Segments::give(const Place& place) noexcept try {
  std::uintptr_t address = place.address;
  Bytes size = in_pages(place.size);
  {
    const Lock lock(mutex_);
    if (place.page != nullptr) {
      address = place.page->address;
      size = page_;
      const auto offset = static_cast<Bytes>(place.address - address);
      const bool is_last = pages_[place.stream].give(place.page, offset, place.size);
      holes_ += place.size;
      if (!is_last) return;
      holes_ -= size;
    } else {
      ends_ -= size - place.size;
    }
    if (keep({place.stream, size}, address)) return;
  }
  drop({place.stream, size}, address);
} catch (const std::bad_alloc&) {
}

// A live segment is free from now on; false: the host has no memory to note it.
bool Segments::keep(Key key, std::uintptr_t address) try {
  std::list<Free> segment{{key, address, came_}};
  free_by_key_.emplace(key, segment.begin());
  free_.splice(free_.end(), segment);
  ++came_;
  live_ -= key.second;
  kept_ += key.second;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// Gives a live segment back to the device; where that cannot be now, it stays a live one.
void Segments::drop(Key key, std::uintptr_t address) {
  if (!may_free()) return;
  free_device(address);
  const Lock lock(mutex_);
  live_ -= key.second;
}

// Gives free segments back to the device until at most `keep` bytes of them are left: those that are free now, as what
// joins them later may have work that the wait does not cover.
void Segments::release(Bytes keep) {
  std::uint64_t later = 0;
  {
    const Lock lock(mutex_);
    if (kept_ <= keep) return;
    later = came_;
  }
  if (!may_free()) return;
  std::list<Free> gone;
  Bytes bytes = 0;
  {
    const Lock lock(mutex_);
    while (kept_ > keep && free_.front().number < later) {
      const Key key = free_.front().key;
      free_by_key_.erase(free_by_key_.lower_bound(key));
      gone.splice(gone.end(), free_, free_.begin());
      kept_ -= key.second;
      bytes += key.second;
    }
    leaving_ += bytes;
  }
  for (const Free& segment : gone) free_device(segment.address);
  const Lock lock(mutex_);
  leaving_ -= bytes;
}

bool Segments::may_free() const try { return may_free_(owner_); } catch (const std::bad_alloc&) {
  return false;
}

void Segments::free_device(std::uintptr_t address) const {
  const Apart apart;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  api_.checked(api_.free(reinterpret_cast<void*>(address)));
}

bool Segments::keep_limit(Bytes asked) {
  for (int attempt = 0;; ++attempt) {
    Bytes keep = 0;
    {
      const Lock lock(mutex_);
      if (fits(asked)) return true;
      keep = std::max(kept_ - over(asked), Bytes{0});
    }
    if (attempt == 1) return false;
    release(keep);
  }
}

void Segments::make_room() {
  Bytes keep = 0;
  {
    const Lock lock(mutex_);
    keep = std::max(std::max(most_, most_before_) - live_ - arenas_ - claimed_ - leaving_, Bytes{0});
  }
  release(keep);
}

void Segments::note(Bytes size) {
  live_ += size;
  note_most();
  peak_ = std::max(peak_, sum());
}

// Notes what has been live at a time, as if small blocks filled their pages.
void Segments::note_most() {
  most_ = std::max(most_, live_ - holes_ / page_ * page_ + arenas_);
  const Bytes lost = holes_ + ends_;
  if (live_ - lost + arenas_ > top_) {
    top_ = live_ - lost + arenas_;
    lost_ = lost;
  }
}

Bytes Segments::room(bool within_limit, Bytes live_peak) {
  const Lock lock(mutex_);
  const Bytes lost = holes_ + ends_;
  const Bytes most = within_limit ? kEndless : live_peak + std::min(lost, lost_);
  const Bytes allowed = limit_ != 0 ? limit_ + lost : kEndless;
  return std::max(std::min(most, allowed) - live_ - beside_used_, Bytes{0});
}

void Segments::note_arenas(Bytes size) {
  Bytes more = 0;
  {
    const Lock lock(mutex_);
    claimed_ += more = std::max(size - arenas_, Bytes{0});
  }
  make_room();
  const Lock lock(mutex_);
  claimed_ -= more;
  arenas_ = size;
  note(0);
}

void Segments::note_beside(Bytes held, Bytes used) {
  const Lock lock(mutex_);
  beside_held_ = held;
  beside_used_ = used;
  peak_ = std::max(peak_, sum());
}

void Segments::begin_step() {
  const Lock lock(mutex_);
  most_before_ = most_;
  most_ = live_ + arenas_;
}

Bytes Segments::held() {
  const Lock lock(mutex_);
  return sum();
}

Bytes Segments::peak() {
  const Lock lock(mutex_);
  return peak_;
}

void Segments::reset_peak() {
  const Lock lock(mutex_);
  peak_ = sum();
}

std::size_t Segments::free_segments() {
  const Lock lock(mutex_);
  return free_.size();
}

Bytes Segments::unused() {
  const Lock lock(mutex_);
  return holes_ + ends_;
}

}  // namespace stowplan::allocator
