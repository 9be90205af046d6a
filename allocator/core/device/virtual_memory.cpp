#include "virtual_memory.hpp"

#include "apart.hpp"

namespace stowplan::allocator {

namespace {

constexpr Bytes kReach = 4;  // times the device's bytes

MemoryProperties properties_of(const VirtualMemory& memory) {
  MemoryProperties properties;
  properties.location.device = memory.devices.front();
  properties.rdma = memory.rdma ? 1 : 0;
  return properties;
}

}  // namespace

VirtualMemory VirtualMemory::of(const CudaApi& api, int device) {
  VirtualMemory memory{api, 0, api.peers_of(device), false};
  memory.devices.insert(memory.devices.begin(), device);
  std::size_t free = 0, total = 0;
  const Apart apart;
  const OnDevice on(api, device);
  if (api.checked(api.memory_info(&free, &total)) == kCudaSuccess) memory.reach = kReach * static_cast<Bytes>(total);
  int rdma = 0;
  if (api.device_attribute != nullptr) {
    const CudaError error = api.device_attribute(&rdma, kCudaRdmaWithVirtualMemory, device);
    memory.rdma = error == kCudaSuccess && rdma != 0;
  }
  if (const Bytes page = memory.page(); page > 0) memory.reach = (memory.reach + page - 1) / page * page;
  return memory;
}

Bytes VirtualMemory::page() const {
  if (!api.has_virtual_memory || reach == 0) return 0;
  const MemoryProperties properties = properties_of(*this);
  std::size_t page = 0;
  return api.checked(api.granularity(&page, &properties, 0)) == 0 ? static_cast<Bytes>(page) : 0;
}

bool VirtualMemory::reserve(Bytes& base) const {
  void* found = nullptr;
  if (api.checked(api.reserve(&found, static_cast<std::size_t>(reach), 0, nullptr, 0)) != kCudaSuccess) return false;
  base = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(found));
  return true;
}

void VirtualMemory::unreserve(Bytes base) const { api.unreserve(pointer(base), static_cast<std::size_t>(reach)); }

CudaError VirtualMemory::make(MemoryHandle& memory, Bytes size) const {
  const MemoryProperties properties = properties_of(*this);
  return api.checked(api.create(&memory, static_cast<std::size_t>(size), &properties, 0));
}

CudaError VirtualMemory::open(Bytes begin, Bytes size) const {
  for (const int device : devices) {
    MemoryAccess access;
    access.location.device = device;
    const CudaError error = api.checked(api.set_access(pointer(begin), static_cast<std::size_t>(size), &access, 1));
    if (error != kCudaSuccess && device == devices.front()) return error;  // copies to the others go another way
  }
  return kCudaSuccess;
}

}  // namespace stowplan::allocator
