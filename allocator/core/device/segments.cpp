#include "segments.hpp"

#include <algorithm>

#include "apart.hpp"

namespace stowplan::allocator {

// The process may outlive its device, so errors of the driver are ignored here.
Segments::~Segments() {
  std::vector<std::uintptr_t> gone;
  for (const Free& segment : free_) gone.push_back(segment.address);
  free_device(gone);
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
  const Lock lock(mutex_);
  // Another thread, or a finalizer, may have made some.
  const bool has_room = (error == kCudaSuccess || fits(place.size)) && cut(place);
  if (error != kCudaSuccess) return has_room ? kCudaSuccess : error;
  if (has_room) {
    keep({place.stream, page_}, address);
    return kCudaSuccess;
  }
  holes_ += page_;
  pages_[place.stream].add(address, page_);
  cut(place);
  return kCudaSuccess;
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

bool Segments::reuse(Key key, std::uintptr_t& address) {
  const auto at = free_by_key_.find(key);
  if (at == free_by_key_.end()) return false;
  const auto segment = at->second.back();
  at->second.pop_back();
  if (at->second.empty()) free_by_key_.erase(at);
  address = segment->address;
  kept_ -= key.second;
  free_.erase(segment);
  return true;
}

// A finalizer calls this: where the host has no memory to note a free segment, it stays a live one.
void Segments::give(const Place& place) noexcept try {
  const Lock lock(mutex_);
  std::uintptr_t address = place.address;
  Bytes size = in_pages(place.size);
  if (place.page != nullptr) {
    address = place.page->address;
    size = page_;
    holes_ += place.size;
    const auto offset = static_cast<Bytes>(place.address - address);
    if (!pages_[place.stream].give(place.page, offset, place.size)) return;
    holes_ -= size;
  } else {
    ends_ -= size - place.size;
  }
  keep({place.stream, size}, address);
} catch (const std::bad_alloc&) {
}

// A live segment is free from now on.
void Segments::keep(Key key, std::uintptr_t address) {
  free_by_key_[key].push_back(free_.insert(free_.end(), {key, address}));
  live_ -= key.second;
  kept_ += key.second;
}

// Gives free segments back to the device until at most `keep` bytes of them are left. First they are taken out: what
// joins them later may have work that the wait does not cover.
void Segments::release(Bytes keep) {
  std::list<Free> gone;
  Bytes bytes = 0;
  {
    const Lock lock(mutex_);
    while (kept_ > keep && !free_.empty()) {
      const Key key = free_.front().key;
      const auto at = free_by_key_.find(key);
      at->second.pop_front();
      if (at->second.empty()) free_by_key_.erase(at);
      gone.splice(gone.end(), free_, free_.begin());
      kept_ -= key.second;
      bytes += key.second;
    }
    leaving_ += bytes;
  }
  if (bytes == 0) return;
  const bool may_go = may_free_(owner_);
  if (may_go) {
    std::vector<std::uintptr_t> addresses;
    for (const Free& segment : gone) addresses.push_back(segment.address);
    free_device(addresses);
  }
  const Lock lock(mutex_);
  leaving_ -= bytes;
  if (may_go) return;
  kept_ += bytes;
  for (auto segment = gone.end(); segment != gone.begin();) {
    --segment;
    free_by_key_[segment->key].push_front(segment);
  }
  free_.splice(free_.begin(), gone);
}

void Segments::free_device(const std::vector<std::uintptr_t>& addresses) const {
  if (addresses.empty()) return;
  const Apart apart;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  for (const std::uintptr_t address : addresses) api_.checked(api_.free(reinterpret_cast<void*>(address)));
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
