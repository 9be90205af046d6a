// A device's virtual memory: addresses without memory, memory without an address, and the one mapped at the other.
//
// The functions are those of CUDA's driver and of HIP (CUDA driver API, "Virtual Memory Management"; HIP, "Virtual
// memory management"). PyTorch's expandable segments use them, too.
#pragma once

#include <vector>

#include "cuda_api.hpp"
#include "plan.hpp"

namespace stowplan::allocator {

inline void* pointer(Bytes address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

struct VirtualMemory {
  CudaApi api;
  Bytes reach = 0;           // addresses that a heap reserves: they spread, and arenas have some without memory
  std::vector<int> devices;  // that may use the memory; it is the first one's, and the others may be refused
  bool rdma = false;         // other hardware may read and write it (NVIDIA's GPUDirect RDMA)

  // Returns a device's virtual memory. Peers of the device may access it, because programs copy from one device to
  // another. Without virtual memory, page() is 0.
  static VirtualMemory of(const CudaApi& api, int device);
  // Bytes in which memory comes.
  Bytes page() const;
  // Addresses without memory, `reach` of them.
  bool reserve(Bytes& base) const;
  void unreserve(Bytes base) const;
  // Memory without an address.
  CudaError make(MemoryHandle& memory, Bytes size) const;
  // Has the devices use what is mapped there.
  CudaError open(Bytes begin, Bytes size) const;
};

}  // namespace stowplan::allocator
