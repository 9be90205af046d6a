#include "virtual_arena.hpp"

#include <algorithm>

#include "apart.hpp"

namespace stowplan::allocator {

namespace {

// A piece is such a part of its arena, or a page.
constexpr Bytes kPieces = 1024;

MemoryProperties properties_of(const VirtualMemory& memory) {
  MemoryProperties properties;
  properties.location.device = memory.devices.front();
  return properties;
}

}  // namespace

VirtualMemory VirtualMemory::of(const CudaApi& api, int device) {
  VirtualMemory memory{api, 0, api.peers_of(device)};
  memory.devices.insert(memory.devices.begin(), device);
  std::size_t free = 0, total = 0;
  const Apart apart;
  const OnDevice on(api, device);
  if (api.checked(api.memory_info(&free, &total)) == kCudaSuccess) memory.reach = static_cast<Bytes>(total);
  return memory;
}

Bytes VirtualMemory::page() const {
  if (!api.has_virtual_memory || reach == 0) return 0;
  const MemoryProperties properties = properties_of(*this);
  std::size_t page = 0;
  return api.checked(api.granularity(&page, &properties, 0)) == 0 ? static_cast<Bytes>(page) : 0;
}

std::unique_ptr<VirtualArena> VirtualArena::reserve(const VirtualMemory& memory) {
  const Apart apart;
  const Bytes page = memory.page();
  void* base = nullptr;
  if (page == 0) return nullptr;
  VirtualMemory rounded = memory;
  rounded.reach = (memory.reach + page - 1) / page * page;
  const auto reach = static_cast<std::size_t>(rounded.reach);
  if (memory.api.checked(memory.api.reserve(&base, reach, 0, nullptr, 0)) != 0) return nullptr;
  return std::unique_ptr<VirtualArena>(new VirtualArena(rounded, reinterpret_cast<std::uintptr_t>(base), page));
}

VirtualArena::~VirtualArena() {
  const Apart apart;
  for (auto piece = pieces_.begin(); piece != pieces_.end();) piece = unmap(piece);
  memory_.api.unreserve(at(0), static_cast<std::size_t>(memory_.reach));
}

Bytes VirtualArena::missing(Bytes begin, Bytes end) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Bytes missing = end - begin;
  for (const auto& [first, piece] : pieces_) {
    missing -= std::max(Bytes{0}, std::min(end, piece.end) - std::max(begin, first));
  }
  return missing;
}

std::vector<Range> VirtualArena::memory() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Range> memory;
  for (const auto& [begin, piece] : pieces_) {
    if (memory.empty() || memory.back().end != address(begin)) memory.push_back({address(begin), 0});
    memory.back().end = address(piece.end);
  }
  return memory;
}

int VirtualArena::extend(Bytes begin, Bytes end, Bytes most) {
  const Apart apart;
  const std::lock_guard<std::mutex> lock(changing_);
  const Bytes largest = std::max(granularity_, rounded(end / kPieces));
  while (most > 0 && end > begin) {
    auto below = pieces_.lower_bound(end);  // the last piece that begins before the end
    const Bytes taken_to = below == pieces_.begin() ? begin : (--below)->second.end;
    if (taken_to >= end) {
      end = below->first;
      continue;
    }
    const Bytes size = std::min({largest, most, end - std::max(begin, taken_to)});
    if (const int error = map(end - size, end); error != 0) return error;
    end -= size;
    most -= size;
  }
  return 0;
}

int VirtualArena::map(Bytes begin, Bytes end) {
  const CudaApi& api = memory_.api;
  const auto size = static_cast<std::size_t>(end - begin);
  Pieces piece{{begin, {end, 0}}};  // before the device gives anything, as the host may have no memory for it
  const MemoryProperties properties = properties_of(memory_);
  MemoryHandle handle = 0;
  CudaError error = api.checked(api.create(&handle, size, &properties, 0));
  if (error != 0) return error;
  error = api.checked(api.map(at(begin), size, 0, handle, 0));
  for (const int device : memory_.devices) {
    MemoryAccess access;
    access.location.device = device;
    if (error != 0) break;
    error = api.checked(api.set_access(at(begin), size, &access, 1));
    if (error == 0) continue;
    if (device != memory_.devices.front()) error = 0;  // copies to there go another way
    if (error != 0) api.unmap(at(begin), size);
  }
  if (error != 0) {
    api.release(handle);
  } else {
    piece.begin()->second.handle = handle;
    const std::lock_guard<std::mutex> lock(mutex_);
    pieces_.merge(piece);
  }
  return error;
}

VirtualArena::Pieces::iterator VirtualArena::unmap(Pieces::iterator piece) {
  memory_.api.unmap(at(piece->first), static_cast<std::size_t>(piece->second.end - piece->first));
  memory_.api.release(piece->second.handle);
  const std::lock_guard<std::mutex> lock(mutex_);
  return pieces_.erase(piece);
}

Bytes VirtualArena::shrink(const std::vector<Range>& idle, Bytes enough) {
  const Apart apart;
  const std::lock_guard<std::mutex> lock(changing_);
  Bytes gone = 0;
  for (const Range range : idle) {
    const auto begin = static_cast<Bytes>(range.begin - base_), end = static_cast<Bytes>(range.end - base_);
    auto piece = pieces_.lower_bound(begin);
    while (gone < enough && piece != pieces_.end() && piece->second.end <= end) {
      gone += piece->second.end - piece->first;
      piece = unmap(piece);
    }
  }
  return gone;
}

}  // namespace stowplan::allocator
