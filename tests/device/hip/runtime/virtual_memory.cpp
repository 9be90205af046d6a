// Virtual memory: addresses without memory (hipMemAddressReserve), memory without addresses (hipMemCreate), and what
// maps the one to the other (hipMemMap).
//
//   addresses   |........[== mapping ==][== mapping ==]......|      A handle's memory counts for its device from
//                             |               |                     hipMemCreate until it is released and mapped
//   handles              [== 2 MiB ==]   [== 4 MiB ==]              nowhere.
//
// Nothing here has to wait for the device: work that runs after hipMemUnmap, and uses what was there, is a fault. CUDA
// may wait where what is mapped, or who may use it, changes (SIMHIP_MAPPING_WAITS=1). All under the device's lock;
// O(log n) for n mappings.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>

#include "contexts.hpp"
#include "devices.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "memory.hpp"
#include "pages.hpp"
#include "schedule.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

constexpr std::size_t kRecommended = std::size_t{2} << 20;

struct Handle {
  Handle(int device, std::size_t size, int file) : device(device), size(size), file(file) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    close(file);
    memory().discharge(device, size);
  }

  int device;
  std::size_t size;
  int file;
};
using HandleRef = std::shared_ptr<Handle>;

struct Mapping {
  std::size_t size;
  HandleRef handle;
};

std::map<const void*, HandleRef>& handles() {
  static auto* all = new std::map<const void*, HandleRef>;
  return *all;
}

std::map<std::uintptr_t, std::size_t>& reservations() {
  static auto* all = new std::map<std::uintptr_t, std::size_t>;
  return *all;
}

std::map<std::uintptr_t, Mapping>& mappings() {
  static auto* all = new std::map<std::uintptr_t, Mapping>;
  return *all;
}

std::uintptr_t number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
bool is_whole(std::uintptr_t value) { return value % settings().page == 0; }

bool is_reserved(std::uintptr_t base, std::size_t size) {
  auto after = reservations().upper_bound(base);
  return after != reservations().begin() && base + size <= (--after)->first + after->second;
}

bool touches_mapping(std::uintptr_t base, std::size_t size) {
  auto after = mappings().lower_bound(base + size);
  return after != mappings().begin() && (--after)->first + after->second.size > base;
}

// Whether the range is mappings from end to end, each of them whole.
bool is_whole_mappings(std::uintptr_t base, std::size_t size) {
  auto mapping = mappings().find(base);
  std::uintptr_t at = base;
  for (; mapping != mappings().end() && mapping->first == at && at < base + size; ++mapping) {
    at += mapping->second.size;
  }
  return size != 0 && at == base + size;
}

bool is_on_device(const hipMemLocation& location) {
  return location.type == hipMemLocationTypeDevice && is_device(location.id);
}

hipError_t refuse_unsupported() {
  return settings().virtual_memory != 0 ? refuse_lost(current_device) : note(hipErrorNotSupported);
}

hipError_t reserve(void** out, std::size_t size, std::size_t alignment, unsigned long long flags) {
  const bool power = (alignment & (alignment - 1)) == 0;
  if (out == nullptr || size == 0 || !is_whole(size) || !power || flags != 0) return note(hipErrorInvalidValue);
  const std::uintptr_t base = memory().reserve(size, std::max(alignment, kRecommended));
  if (base == 0) return note(hipErrorOutOfMemory);
  reservations()[base] = size;
  *out = reinterpret_cast<void*>(base);
  return hipSuccess;
}

hipError_t unreserve(std::uintptr_t base, std::size_t size) {
  const auto found = reservations().find(base);
  const bool there = found != reservations().end() && found->second == size;
  if (!there || touches_mapping(base, size)) return note(hipErrorInvalidValue);
  reservations().erase(found);
  memory().unreserve(base);
  return hipSuccess;
}

hipError_t create(hipMemGenericAllocationHandle_t* out, std::size_t size, const hipMemAllocationProp& prop,
                  unsigned long long flags) {
  const bool pinned = prop.type == hipMemAllocationTypePinned;
  if (size == 0 || !is_whole(size) || !pinned || !is_on_device(prop.location) || flags != 0) {
    return note(hipErrorInvalidValue);
  }
  if (!memory().charge(prop.location.id, size)) return note(hipErrorOutOfMemory);
  const int file = make_file(size);
  if (file < 0) {
    memory().discharge(prop.location.id, size);
    return note(hipErrorOutOfMemory);
  }
  const auto handle = std::make_shared<Handle>(prop.location.id, size, file);
  handles()[handle.get()] = handle;
  *out = reinterpret_cast<hipMemGenericAllocationHandle_t>(handle.get());
  return hipSuccess;
}

hipError_t map(std::uintptr_t base, std::size_t size, std::size_t offset, const void* key, unsigned long long flags) {
  const auto found = handles().find(key);
  if (found == handles().end() || flags != 0 || offset != 0) return note(hipErrorInvalidValue);
  const HandleRef handle = found->second;
  if (size == 0 || !is_whole(base) || !is_whole(size) || size > handle->size) return note(hipErrorInvalidValue);
  if (!is_reserved(base, size) || touches_mapping(base, size)) return note(hipErrorInvalidValue);
  if (settings().virtual_memory == 2) return note(hipErrorInvalidDevice);  // as CUDA's on some virtual machines
  auto* at = reinterpret_cast<void*>(base);
  if (mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->file, 0) == MAP_FAILED) return note(hipErrorMapFailed);
  mappings()[base] = {size, handle};
  memory().add_mapping(base, size, handle->device);
  return hipSuccess;
}

hipError_t wait_where_that_is_chosen(Lock& lock, std::uintptr_t base) {
  const auto found = mappings().find(base);
  if (!settings().mapping_waits || found == mappings().end()) return hipSuccess;
  return wait_for_device(lock, found->second.handle->device);
}

hipError_t unmap(Lock& lock, std::uintptr_t base, std::size_t size) {
  if (const hipError_t error = wait_where_that_is_chosen(lock, base); error != hipSuccess) return error;
  if (!is_whole_mappings(base, size)) return note(hipErrorInvalidValue);
  for (auto mapping = mappings().find(base); mapping != mappings().end() && mapping->first < base + size;) {
    close_pages(mapping->first, mapping->second.size);
    memory().remove_mapping(mapping->first);
    mapping = mappings().erase(mapping);
  }
  return hipSuccess;
}

// The host's pages are as open as the most that any device may do.
hipError_t set_access(Lock& lock, std::uintptr_t base, std::size_t size, const hipMemAccessDesc* wanted,
                      std::size_t count) {
  if (const hipError_t error = wait_where_that_is_chosen(lock, base); error != hipSuccess) return error;
  if (wanted == nullptr || count == 0 || !is_whole_mappings(base, size)) return note(hipErrorInvalidValue);
  for (std::size_t i = 0; i < count; ++i) {
    const bool known = wanted[i].flags == hipMemAccessFlagsProtNone || wanted[i].flags == hipMemAccessFlagsProtRead ||
                       wanted[i].flags == hipMemAccessFlagsProtReadWrite;
    if (!known || !is_on_device(wanted[i].location)) return note(hipErrorInvalidValue);
  }
  int open = PROT_NONE;
  for (std::size_t i = 0; i < count; ++i) {
    if (wanted[i].flags == hipMemAccessFlagsProtRead) open |= PROT_READ;
    if (wanted[i].flags == hipMemAccessFlagsProtReadWrite) open |= PROT_READ | PROT_WRITE;
    for (auto at = mappings().find(base); at != mappings().end() && at->first < base + size; ++at) {
      memory().set_access(at->first, wanted[i].location.id, wanted[i].flags != hipMemAccessFlagsProtNone);
    }
  }
  mprotect(reinterpret_cast<void*>(base), size, open);
  return hipSuccess;
}

}  // namespace

}  // namespace simhip

using simhip::Lock;
using simhip::machine;
using simhip::note;
using simhip::number_of;

extern "C" {

hipError_t hipMemGetAllocationGranularity(std::size_t* granularity, const hipMemAllocationProp* prop,
                                          hipMemAllocationGranularity_flags flags) {
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  if (granularity == nullptr || prop == nullptr || !simhip::is_on_device(prop->location)) {
    return note(hipErrorInvalidValue);
  }
  const std::size_t page = simhip::settings().page;
  *granularity = flags == hipMemAllocationGranularityMinimum ? page : std::max(page, simhip::kRecommended);
  return hipSuccess;
}

// The wanted address is a wish, as in HIP: it is not granted here.
hipError_t hipMemAddressReserve(void** out, std::size_t size, std::size_t alignment, void*, unsigned long long flags) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  const Lock lock(machine().mutex);
  return simhip::reserve(out, size, alignment, flags);
}

hipError_t hipMemAddressFree(void* base, std::size_t size) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  const Lock lock(machine().mutex);
  return simhip::unreserve(number_of(base), size);
}

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t* out, std::size_t size, const hipMemAllocationProp* prop,
                        unsigned long long flags) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  if (out == nullptr || prop == nullptr) return note(hipErrorInvalidValue);
  const Lock lock(machine().mutex);
  return simhip::create(out, size, *prop, flags);
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  const Lock lock(machine().mutex);
  return simhip::handles().erase(handle) != 0 ? hipSuccess : note(hipErrorInvalidValue);
}

hipError_t hipMemMap(void* base, std::size_t size, std::size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  const Lock lock(machine().mutex);
  return simhip::map(number_of(base), size, offset, handle, flags);
}

hipError_t hipMemUnmap(void* base, std::size_t size) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  Lock lock(machine().mutex);
  return simhip::unmap(lock, number_of(base), size);
}

hipError_t hipMemSetAccess(void* base, std::size_t size, const hipMemAccessDesc* wanted, std::size_t count) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  Lock lock(machine().mutex);
  return simhip::set_access(lock, number_of(base), size, wanted, count);
}

}  // extern "C"
