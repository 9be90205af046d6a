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
  note_memory();
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
  const Bytes before = memory.held();
  if (!memory.grow(size)) return false;
  note_memory(memory.held() - before - (size - lane.arena().size));  // what was reserved is counted when it is touched
  lane.reserve(memory.base(), memory.size());
  return true;
}

// A block of an arena is about to be used.
void HostLanes::touch(Range range) noexcept {
  const auto owns = [&](const auto& memory) { return memory != nullptr && memory->has_address(range.begin); };
  HostArena& memory = **std::find_if(memory_.begin(), memory_.end(), owns);
  const HostArena::Pages pages = memory.around(range.begin, range.end);
  if (memory.resident(pages) == pages.size()) return;
  const Bytes before = memory.held();
  memory.touch(pages);
  const Bytes fresh = memory.held() - before;
  make_room(fresh, 0);
  note_memory(fresh);
}

// So many bytes more are about to be in memory, of which some are to be live.
void HostLanes::make_room(Bytes held, Bytes live) noexcept {
  const Counters& now = lanes_.counters();
  const auto excess = [&] { return now.reserved_bytes() + held - std::max(now.most_live(), now.live_bytes + live); };
  note_memory();
  if (excess() <= kSlack) return;
  heap_.give_back(static_cast<std::size_t>(excess()));
  note_memory();
  if (excess() > kSlack) give_back_idle(excess());
}

void HostLanes::give_back_idle(Bytes enough) noexcept try {
  std::vector<Range> taken;
  for (const BlockId id : lanes_.live_blocks()) taken.push_back(used_by(id));
  std::sort(taken.begin(), taken.end(), [](Range a, Range b) { return a.begin > b.begin; });
  for (const std::unique_ptr<HostArena>& memory : memory_) {
    if (memory == nullptr) continue;
    const Bytes before = memory->held();
    std::uintptr_t end = memory->base() + memory->usable() * HostArena::kPage;
    const auto give_back_from = [&](std::uintptr_t begin) {  // by huge pages, and parts of them only if much is to go
      while (end > begin && before - memory->held() < enough) {
        const std::uintptr_t upper = std::max(begin, (end - 1) & ~(HostArena::kHugePage * HostArena::kPage - 1));
        const HostArena::Pages pages = memory->within(upper, std::exchange(end, upper));
        const bool is_whole = pages.size() == HostArena::kHugePage;
        if (!is_whole && enough <= parts_) continue;
        const auto given = static_cast<Bytes>(memory->give_back(pages) * HostArena::kPage);
        parts_back_ += is_whole ? 0 : given;
      }
    };
    for (const Range block : taken) {
      if (!memory->has_address(block.begin)) continue;
      give_back_from(block.end);
      end = block.begin;
    }
    give_back_from(memory->base());
    enough -= before - memory->held();
    note_memory(memory->held() - before);
  }
  if (parts_back_ > lanes_.counters().most_live()) {  // the program wants them again
    parts_ = std::min(2 * parts_, kMostParts);
    parts_back_ = 0;
  }
} catch (const std::bad_alloc&) {  // they stay
}

void HostLanes::give_back() {
  lanes_.retire_idle_arenas();
  const std::vector<std::uintptr_t> dead = lanes_.take_dead_arenas();
  for (std::unique_ptr<HostArena>& memory : memory_) {
    const bool is_dead = memory != nullptr && std::find(dead.begin(), dead.end(), memory->base()) != dead.end();
    if (!is_dead) continue;
    note_memory(memory->size() - memory->held());
    memory.reset();
  }
  heap_.release();
  note_memory();
}

bool host_retire(HostMemory& memory) {
  return memory.locked([](HostLanes& host) {
    host.give_back();
    return host.lanes().live_blocks().empty() && host.lanes().counters().of(Reason::unnoted) == 0;
  });
}

void host_trim(HostMemory& memory) {
  memory.locked([](HostLanes& host) { host.give_back_idle(INT64_MAX); });
  memory.service().heap().release();
  trim_c_library();
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
  trim_c_library();
  return memory.locked([&](HostLanes& host) {
    if (!host.grow(lane, size)) return false;
    const HostArena& arena = host.memory(lane);
    memory.add_arena(arena.base(), arena.base() + arena.addresses());
    return true;
  });
}

}  // namespace stowplan::allocator
