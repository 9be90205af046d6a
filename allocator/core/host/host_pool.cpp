#include "host_pool.hpp"

#include <algorithm>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <climits>

namespace stowplan::allocator {

namespace {

constexpr int kLargestThreshold = 32 << 20;  // that glibc takes
constexpr int kTopPad = 16 << 20;            // the heap grows by as much more than is asked for

}  // namespace

Counters HostLanes::counters() {
  if (is_heap_only_.load(std::memory_order_relaxed)) count_heap_only();
  note_kept();
  Counters all = lanes_.counters();
  if (all.of(Reason::heap_only) == 0) return all;
  const HostHeap::Counts heap = heap_.counts();
  const auto at_least = [](Bytes& count, std::size_t bytes) { count = std::max(count, static_cast<Bytes>(bytes)); };
  at_least(all.live_bytes, heap.in_use);
  at_least(all.upstream_bytes, heap.in_use);
  at_least(all.peak_live_bytes, heap.peak_in_use);
  at_least(all.peak_reserved_bytes, heap.peak_resident);
  all.note_peaks();
  return all;
}

bool HostLanes::grow(LaneNumber number, Bytes size) {
  Replay& lane = lanes_.lane(number);
  if (!allows(size - lane.arena().size)) return false;
  if (memory_.size() <= number) memory_.resize(number + 1u);
  if (memory_[number] == nullptr) memory_[number] = std::make_unique<HostArena>();
  HostArena& memory = *memory_[number];
  if (!memory.grow(size)) return false;
  lane.reserve(memory.base(), memory.size());
  note_kept();
  arena_is_new_ = true;
  return true;
}

void HostLanes::give_back() {
  for (std::size_t i = 0; i < lanes_.lanes(); ++i) lanes_.lane(static_cast<LaneNumber>(i)).retire_idle_arena();
  const std::vector<std::uintptr_t> dead = lanes_.take_dead_arenas();
  for (std::unique_ptr<HostArena>& memory : memory_) {
    const bool is_dead = memory != nullptr && std::find(dead.begin(), dead.end(), memory->base()) != dead.end();
    if (is_dead) memory.reset();
  }
  release_heap();
}

void HostLanes::drop_idle_pages() {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (memory_[i] != nullptr && lanes_.lane(static_cast<LaneNumber>(i)).arena().live == 0) memory_[i]->drop_pages();
  }
}

bool host_retire(HostMemory& memory) {
  return memory.locked([](HostLanes& host) {
    host.give_back();
    return host.lanes().live_blocks().empty() && host.lanes().counters().of(Reason::unnoted) == 0;
  });
}

void host_trim(HostMemory& memory) {
  memory.service().heap().release();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, kTopPad);
#endif
}

bool host_reserve(HostMemory& memory, LaneNumber lane, Bytes size) {
  if (memory.locked([&](HostLanes& host) { return host.lanes().lane(lane).arena().size >= size; })) return true;
  host_trim(memory);
  return memory.locked([&](HostLanes& host) {
    if (!host.grow(lane, size)) return false;
    const HostArena& arena = host.memory(lane);
    memory.add_arena(arena.base(), arena.base() + arena.addresses());
    return true;
  });
}

}  // namespace stowplan::allocator
