#include "heap_arena.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "apart.hpp"

namespace stowplan::allocator {

std::unique_ptr<HeapArena> HeapArena::place(DeviceHeap& heap, Bytes size, Stream stream) {
  const Apart apart;
  const Lock changing(heap.changing_);
  if (heap.base_ == 0 && !heap.reserve_addresses()) return nullptr;
  std::unique_ptr<HeapArena> arena(new HeapArena(heap));
  const Lock lock(heap.mutex_);
  const Holes::State user = heap.user_of(stream);
  const Bytes others = static_cast<Bytes>(heap.arena_bases_.size()) * DeviceHeap::kUnit;
  const auto lack = heap.lacking_of(user, size + others);
  if (lack.bytes >= DeviceHeap::kEndless) return nullptr;
  // Addresses without memory come in whole pages. No two arenas begin at one address, though what one has given back
  // may be the other's.
  const auto is_empty = [&](Bytes at) { return heap.holes_.at_or_after(at)->second.state == Holes::kNone; };
  Bytes begin = is_empty(lack.begin) ? heap.down(lack.begin) : lack.begin;
  while (!heap.arena_bases_.insert(begin).second) begin += is_empty(begin) ? heap.page_ : DeviceHeap::kUnit;
  const Bytes last = std::max(begin, lack.begin) + size - 1;
  Bytes end = last + 1;
  if (is_empty(last)) end = std::min(heap.up(end + size), heap.holes_.at_or_after(last)->second.end);  // it may grow
  heap.holes_.change(heap.down(begin), heap.up(end), Holes::kNone, Holes::kArena);
  arena->begin_ = begin;
  arena->end_ = end;
  arena->user_ = user;
  ++heap.users_.at(user).asking;
  return arena;
}

HeapArena::~HeapArena() {
  const Lock lock(heap_.mutex_);
  for (const auto& [begin, end] : taken_) put_back(begin, end);
  if (end_ == 0) return;  // it was never put anywhere
  --heap_.users_.at(user_).asking;
  heap_.arena_bases_.erase(begin_);
  try {
    heap_.holes_.change(heap_.down(begin_), heap_.up(end_), Holes::kArena, Holes::kNone);
  } catch (const std::bad_alloc&) {  // the addresses are lost
  }
}

void HeapArena::use(Stream stream) {
  const Lock lock(heap_.mutex_);
  const Holes::State user = heap_.user_of(stream);
  has_stream_ = true;
  if (user == user_) return;
  Bytes bytes = 0;
  for (const auto& [begin, end] : taken_) bytes += end - begin;
  heap_.count(user_, -bytes);
  heap_.count_arena(user_, -bytes);
  heap_.count_arena(user, bytes);
  heap_.count(user, bytes);
  --heap_.users_.at(user_).asking;
  ++heap_.users_.at(user).asking;
  user_ = user;
}

void HeapArena::put_back(Bytes begin, Bytes end) noexcept {
  heap_.used_ -= end - begin;
  heap_.count_arena(user_, begin - end);
  heap_.put_back(begin, end - begin, user_);
}

bool HeapArena::reach_to(Bytes size) {
  const Lock lock(heap_.mutex_);
  const Bytes end = heap_.up(begin_ + size);
  if (end <= end_) return true;
  Bytes at = end_;
  auto hole = heap_.holes_.at_or_after(end_);
  for (; at < end && hole != heap_.holes_.end() && hole->first <= at; ++hole) {
    const Holes::State state = hole->second.state;
    if (state != Holes::kNone && state != Holes::kOver && state != user_) break;
    at = hole->second.end;
  }
  if (at < end) return false;
  heap_.holes_.change(heap_.down(end_), end, Holes::kNone, Holes::kArena);
  end_ = end;
  return true;
}

CudaError HeapArena::extend(Bytes begin, Bytes end, Bytes most, bool in_account) {
  const DeviceHeap::Driving driving(heap_);
  heap_.settle();
  begin += begin_;
  end = std::min(begin_ + end, end_.load());
  while (most > 0 && begin < end) {
    Holes::Part part{0, 0};
    {
      const Lock lock(heap_.mutex_);
      for (auto hole = heap_.holes_.at_or_after(begin); hole != heap_.holes_.end() && hole->first < end; ++hole)
        part = {std::max(begin, hole->first), std::min(end, hole->second.end), hole->second.state};
    }
    if (part.end == 0) break;
    part.begin = std::max(part.begin, part.end - most);
    if (!Holes::has_memory(part.state)) part.begin = std::max(begin_, heap_.down(part.begin));
    const CudaError error = take(part.begin, part.end, in_account);
    if (error != kCudaSuccess && error != DeviceHeap::kFull && error != DeviceHeap::kNotOrdered) return error;
    if (error == kCudaSuccess) most -= part.end - part.begin;
    end = part.begin;
  }
  return kCudaSuccess;
}

// Takes holes of one state, and gives them memory if they have none.
CudaError HeapArena::take(Bytes begin, Bytes end, bool in_account) {
  Taken noted{{begin, end}};
  CudaError error = fill(begin, end, true);
  if (!in_account) {
    while (error == DeviceHeap::kFull && heap_.await_one()) error = fill(begin, end, true);
    if (error == DeviceHeap::kFull) error = fill(begin, end, false);
  }
  if (error != kCudaSuccess) return error;
  const Lock lock(heap_.mutex_);
  heap_.count_arena(user_, end - begin);
  heap_.note({static_cast<std::uintptr_t>(begin), end - begin, end - begin, user_, nullptr});
  add(noted.extract(noted.begin()));
  return error;
}

CudaError HeapArena::fill(Bytes begin, Bytes end, bool in_account) {
  DeviceHeap::Effort effort;
  effort.in_account = in_account;
  DeviceHeap::Growth growth;
  growth.for_arena = true;
  growth.begin = begin;
  growth.end = end;
  Holes::State user = 0;
  {
    const Lock lock(heap_.mutex_);
    user = user_;
    const auto hole = heap_.holes_.at_or_after(begin);
    if (hole == heap_.holes_.end() || hole->first > begin || hole->second.end < end) return DeviceHeap::kFull;
    const bool pends = Holes::has_memory(hole->second.state) && hole->second.state != Holes::kOver;
    if (pends && !has_stream_) return DeviceHeap::kNotOrdered;
    const Bytes lacks = Holes::has_memory(hole->second.state) ? 0 : heap_.up(end) - heap_.down(begin);
    const CudaError error = heap_.provide(growth, heap_.figure(user, end - begin), lacks, 0, effort);
    if (error != kCudaSuccess) return error;
  }
  return heap_.carry_out(growth, user, false);
}

// Joins what touches.
void HeapArena::add(Taken::node_type node) noexcept {
  const auto next = taken_.lower_bound(node.mapped());
  if (next != taken_.end() && next->first == node.mapped()) {
    node.mapped() = next->second;
    taken_.erase(next);
    heap_.holes_.need_not(1);
  }
  const auto after = taken_.lower_bound(node.key());
  if (after != taken_.begin() && std::prev(after)->second == node.key()) {
    std::prev(after)->second = node.mapped();
    heap_.holes_.need_not(1);
  } else {
    taken_.insert(std::move(node));
  }
}

void HeapArena::give(const std::vector<Range>& idle) {
  const Lock lock(heap_.mutex_);
  for (const Range range : idle) {
    const auto begin = static_cast<Bytes>(range.begin), end = static_cast<Bytes>(range.end);
    Taken rest{{end, end}};
    heap_.holes_.promise(2);
    const auto piece = std::prev(taken_.upper_bound(begin));
    rest.begin()->second = piece->second;
    const bool has_before = piece->first < begin, has_after = end < piece->second;
    piece->second = begin;
    if (!has_before) taken_.erase(piece);
    if (has_after) taken_.merge(rest);
    heap_.holes_.need_not(2 - (has_before ? 1 : 0) - (has_after ? 1 : 0));
    put_back(begin, end);
  }
}

Bytes HeapArena::missing(Bytes begin, Bytes end) const {
  const Lock lock(heap_.mutex_);
  Bytes missing = end - begin;
  for (const auto& [first, last] : taken_)
    missing -= std::max(Bytes{0}, std::min(begin_ + end, last) - std::max(begin_ + begin, first));
  return missing;
}

std::vector<Range> HeapArena::memory() const {
  const Lock lock(heap_.mutex_);
  std::vector<Range> memory;
  for (const auto& [begin, end] : taken_)
    memory.push_back({static_cast<std::uintptr_t>(begin), static_cast<std::uintptr_t>(end)});
  return memory;
}

}  // namespace stowplan::allocator
