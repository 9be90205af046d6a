#include "virtual_arena.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "apart.hpp"

namespace stowplan::allocator {

bool VirtualMemory::find(const char* library, const char* prefix) {
  void* loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);  // it is never closed
  if (loaded == nullptr) return false;
  bool complete = true;
#define STOWPLAN_FIND(member, name, parameters)                                                      \
  member = reinterpret_cast<decltype(member)>(dlsym(loaded, (std::string(prefix) + #name).c_str())); \
  complete = complete && (member) != nullptr;
  STOWPLAN_VIRTUAL_MEMORY_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
  return complete;
}

namespace {

MemoryProperties properties_of(const VirtualMemory& memory) {
  MemoryProperties properties;
  properties.location.device = memory.devices.front();
  return properties;
}

}  // namespace

Bytes VirtualMemory::page() const {
  const MemoryProperties properties = properties_of(*this);
  std::size_t page = 0;
  return granularity(&page, &properties, 0) == 0 ? static_cast<Bytes>(page) : 0;
}

std::unique_ptr<VirtualArena> VirtualArena::reserve(const VirtualMemory& memory) {
  const Apart apart;
  const Bytes page = memory.page();
  void* base = nullptr;
  if (page == 0) return nullptr;
  VirtualMemory rounded = memory;
  rounded.reach = (memory.reach + page - 1) / page * page;
  if (memory.reserve(&base, static_cast<std::size_t>(rounded.reach), 0, nullptr, 0) != 0) return nullptr;
  return std::unique_ptr<VirtualArena>(new VirtualArena(rounded, reinterpret_cast<std::uintptr_t>(base), page));
}

VirtualArena::~VirtualArena() {
  const Apart apart;
  for (const Piece& piece : pieces_) {
    memory_.unmap(at(piece.begin), static_cast<std::size_t>(piece.size));
    memory_.release(piece.handle);
  }
  memory_.free(at(0), static_cast<std::size_t>(memory_.reach));
}

int VirtualArena::extend(Bytes begin, Bytes end) {
  const Apart apart;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (mapped_ == 0) {
    begin_ = end;
    end_ = end;
  }
  int error = 0;
  if (end > end_) error = map(end_, end);
  if (error == 0 && begin < begin_) error = map(begin, begin_);
  return error;
}

int VirtualArena::map(Bytes begin, Bytes end) {
  const auto size = static_cast<std::size_t>(end - begin);
  const MemoryProperties properties = properties_of(memory_);
  MemoryHandle handle = 0;
  int error = memory_.create(&handle, size, &properties, 0);
  if (error != 0) return error;
  error = memory_.map(at(begin), size, 0, handle, 0);
  for (const int device : memory_.devices) {
    MemoryAccess access;
    access.location.device = device;
    if (error != 0) break;
    error = memory_.set_access(at(begin), size, &access, 1);
    if (error == 0) continue;
    if (device != memory_.devices.front()) error = 0;  // copies to there go another way
    if (error != 0) memory_.unmap(at(begin), size);
  }
  if (error != 0) {
    memory_.release(handle);
    return error;
  }
  pieces_.push_back({begin, end - begin, handle});
  begin_ = std::min(begin_.load(), begin);
  end_ = std::max(end_.load(), end);
  mapped_ = end_ - begin_;
  return 0;
}

}  // namespace stowplan::allocator
