// Where a block comes to lie that no hole serves, and whose memory it gets: decided under the heap's lock, by bytes
// alone.
#include <algorithm>
#include <utility>

#include "device_heap.hpp"

namespace stowplan::allocator {

// Where a block comes to lie, and what is to be done for that; takes it out of the heap. kFull: the bound does not
// allow it, but may when streams have done more.
CudaError DeviceHeap::design(Growth& growth, const Place& place, const Effort& effort) {
  const State user = place.stream;
  const Bytes most = figure(user, place.size), more = is_virtual() ? 0 : up(place.size);
  Lack lack = is_virtual() ? lacking_of(user, place.size) : Lack{more, 0};
  Bytes room = effort.moves_all ? 0 : std::max(allowed(most, slack_) - held_, Bytes{0});
  if (lack.bytes > room && effort.orders && users_.at(user).stream != kShared) {
    const Lack other = lacking(place.size, [](State s) { return Holes::has_memory(s); });
    const Bytes begin = down(lack.begin), end = up(lack.begin + place.size);
    if (other.bytes < lack.bytes && lack.bytes - room > (is_virtual() ? whole_handles(user, begin, end) : 0)) {
      lack = other;
    }
  }
  if (lack.bytes >= kEndless) return kCudaOutOfMemory;
  growth.begin = lack.begin;
  growth.end = lack.begin + place.size;
  const Bytes rest = place.used == 0 ? page_ : 0;  // of a page that small blocks are to share
  return provide(growth, most, lack.bytes, rest, effort);
}

// Where the memory comes from that a place lacks; takes the place out of the heap. `most`: the figure that is held by.
CudaError DeviceHeap::provide(Growth& growth, Bytes most, Bytes lacks, Bytes rest, const Effort& effort) {
  const double now = effort.in_account ? 0 : slack_;
  const Bytes room = effort.moves_all ? 0 : std::max(allowed(most, now) - held_, Bytes{0});
  growth.most = most;
  Bytes moves = 0;
  std::vector<Bytes> handles;
  if (is_virtual() && lacks > room) {
    handles = idle_handles(lacks - room, true, down(growth.begin), up(growth.end), moves);
  }
  const Bytes fresh = lacks - moves;
  if (fresh > 0 && fresh > most_held() + rest - held_) return kCudaOutOfMemory;
  const double share = effort.in_account ? 0 : std::max(slack_, kBound);
  if (fresh > 0 && fresh > allowed(most, share) - held_ && !effort.exceeds) return kFull;
  cut(growth, handles);
  if (!is_virtual() && lacks > 0) growth.gaps.push_back({0, lacks});
  if (!growth.for_arena) periods_[period_].moved += moves;  // a plan moves them once
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
  std::vector<Part> gaps;
  for (auto hole = holes_.at_or_after(growth.begin); hole != holes_.end() && hole->first < growth.end; ++hole) {
    ++count;
    if (Holes::has_memory(hole->second.state)) continue;
    const Bytes begin = std::max(hole->first, down(growth.begin)), end = std::min(hole->second.end, up(growth.end));
    gaps.push_back({begin, end, hole->second.state});
  }
  growth.parts.reserve(count);
  growth.moving.reserve(handles.size());
  growth.emptied.reserve(handles.size());
  take_promises(growth, 4 * gaps.size() + 2 * handles.size() + count + 4);
  growth.gaps.swap(gaps);
  for (const Part& gap : growth.gaps) {
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
  const auto look = [&](Bytes at, Bytes end, Holes::Iterator hole, Holes::Iterator last) {
    at = aligned(at, size);
    if (at + size > end) return;
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
                    look(begin, end, first, last);
                    for (auto hole = first; hole != last; ++hole) {
                      if (hole->second.state == Holes::kNone) continue;
                      if (hole->first + size <= end) look(hole->first, end, hole, last);
                      look(std::max(begin, hole->second.end - size), end, first, last);
                    }
                  });
  return best;
}

// The same, among a stream's own holes and those that are anybody's.
DeviceHeap::Lack DeviceHeap::lacking_of(State user, Bytes size) const {
  return lacking(size, [user](State state) { return state == Holes::kOver || state == user; });
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
    return found < bytes;
  });
  return handles;
}

}  // namespace stowplan::allocator
