// hipMalloc, hipMallocManaged, hipHostMalloc and their frees; what is known of a pointer.
#include <cstring>

#include "capture.hpp"
#include "contexts.hpp"
#include "devices.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "memory.hpp"
#include "pools.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

hipError_t allocate(Kind kind, std::size_t size, void** out) {
  if (out == nullptr) return note(hipErrorInvalidValue);
  *out = nullptr;
  if (const hipError_t error = enter(current_device); error != hipSuccess || size == 0) return error;
  Lock lock(machine().mutex);
  if (kind != Kind::pinned) {
    if (const hipError_t error = refuse_unsafe(); error != hipSuccess) return error;
  }
  hipError_t error = memory().allocate(kind, current_device, size, out);
  if (error != hipSuccess && kind == Kind::device && release_pools(lock, current_device)) {
    error = memory().allocate(kind, current_device, size, out);
  }
  return note(error);
}

// Waits for the device; for ordered memory not: there the program has to have waited.
hipError_t release(void* pointer, bool of_host) {
  if (const hipError_t error = enter(current_device); error != hipSuccess || pointer == nullptr) return error;
  Lock lock(machine().mutex);
  const std::optional<Block> there = memory().find(pointer);
  if (!there || (there->kind == Kind::pinned) != of_host) return note(hipErrorInvalidValue);
  if (const hipError_t error = refuse_unsafe(); error != hipSuccess) return error;
  const std::optional<Block> block = memory().begin_free(pointer);
  if (!block) return note(hipErrorInvalidValue);
  if (block->kind == Kind::ordered) {
    give_to_pool(*block, {});
  } else if (const hipError_t error = wait_for_device(lock, block->device); error != hipSuccess) {
    memory().cancel_free(pointer);
    return error;
  }
  memory().end_free(pointer);
  return hipSuccess;
}

hipMemoryType type_of(Kind kind) {
  switch (kind) {
    case Kind::managed: return hipMemoryTypeManaged;
    case Kind::pinned: return hipMemoryTypeHost;
    default: return hipMemoryTypeDevice;
  }
}

}  // namespace

}  // namespace simhip

using simhip::Kind;
using simhip::memory;

extern "C" {

hipError_t hipMalloc(void** out, std::size_t size) {
  simhip::refuse_gil(__func__);
  return simhip::allocate(Kind::device, size, out);
}

hipError_t hipMallocManaged(void** out, std::size_t size, unsigned) {
  simhip::refuse_gil(__func__);
  return simhip::allocate(Kind::managed, size, out);
}

hipError_t hipHostMalloc(void** out, std::size_t size, unsigned) {
  simhip::refuse_gil(__func__);
  return simhip::allocate(Kind::pinned, size, out);
}

hipError_t hipFree(void* pointer) {
  simhip::refuse_gil(__func__);
  return simhip::release(pointer, false);
}

hipError_t hipHostFree(void* pointer) {
  simhip::refuse_gil(__func__);
  return simhip::release(pointer, true);
}

hipError_t hipMemGetInfo(std::size_t* free, std::size_t* total) {
  if (const hipError_t error = simhip::enter(simhip::current_device); error != hipSuccess) return error;
  *total = simhip::settings().memory;
  const simhip::Count count = memory().count(simhip::current_device);
  *free = *total - count.used - count.context;
  return hipSuccess;
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const std::optional<simhip::Block> block = memory().find(pointer);
  attributes->type = block ? simhip::type_of(block->kind) : hipMemoryTypeUnregistered;
  attributes->device = block ? block->device : -2;
  if (!block) return hipSuccess;
  attributes->devicePointer = const_cast<void*>(pointer);
  const bool of_host = block->kind == Kind::managed || block->kind == Kind::pinned;
  attributes->hostPointer = of_host ? attributes->devicePointer : nullptr;
  attributes->isManaged = block->kind == Kind::managed ? 1 : 0;
  return hipSuccess;
}

// What tests read. Bytes, in multiples of SIMHIP_GRANULARITY.
std::size_t simhip_used(int device) { return simhip::is_device(device) ? memory().count(device).used : 0; }
std::size_t simhip_peak_used(int device) { return simhip::is_device(device) ? memory().count(device).peak : 0; }
std::size_t simhip_managed_used(int device) { return simhip::is_device(device) ? memory().count(device).managed : 0; }
std::size_t simhip_pinned_used() { return memory().pinned(); }
void simhip_reset_peak(int device) {
  if (simhip::is_device(device)) memory().reset_peak(device);
}

}  // extern "C"
