#include "pools.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>

#include "capture.hpp"
#include "contexts.hpp"
#include "devices.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "settings.hpp"
#include "streams.hpp"

namespace simhip {

namespace {

struct Free {
  std::size_t size;
  Ticket freed;
};

struct Pool {
  int device = 0;
  bool destroyed = false;    // it stays until its last block is free
  std::uint64_t access = 0;  // a bit for each other device that may use what it holds
  std::uint64_t threshold = 0;
  std::size_t used = 0;
  std::size_t used_high = 0;
  std::size_t reserved = 0;
  std::size_t reserved_high = 0;
  std::deque<Free> free;  // oldest first
};

std::list<Pool>& pools() {  // the devices' own first
  static auto* all = [] {
    auto* made = new std::list<Pool>;
    for (int device = 0; device < settings().devices; ++device) made->emplace_back().device = device;
    return made;
  }();
  return *all;
}

Pool& default_pool(int device) { return *std::next(pools().begin(), device); }

// What hipMallocAsync takes from.
Pool*& current_pool(int device) {
  static std::array<Pool*, 64> current = {};
  Pool*& pool = current[static_cast<std::size_t>(device)];
  if (pool == nullptr) pool = &default_pool(device);
  return pool;
}

hipMemPool_t handle_of(Pool& pool) { return reinterpret_cast<hipMemPool_t>(&pool); }

Pool* pool_of(hipMemPool_t handle) {
  for (Pool& pool : pools()) {
    if (handle_of(pool) == handle && !pool.destroyed) return &pool;
  }
  return nullptr;
}

// Takes up to `size` free bytes that the predicate allows; returns how many.
template <class May>
std::size_t take_free(Pool& pool, std::size_t size, May&& may) {
  std::size_t taken = 0;
  for (auto free = pool.free.begin(); free != pool.free.end() && taken < size;) {
    if (!may(*free)) {
      ++free;
      continue;
    }
    const std::size_t part = std::min(free->size, size - taken);
    taken += part;
    free->size -= part;
    free = free->size == 0 ? pool.free.erase(free) : std::next(free);
  }
  return taken;
}

// Gives free bytes back, in the device's units, until the pool holds no more than `least`.
void trim(Pool& pool, std::uint64_t least) {
  if (pool.reserved <= least) return;
  const auto may = [](const Free& f) { return is_done(f.freed); };
  std::size_t most = 0;
  for (const Free& free : pool.free) most += may(free) ? free.size : 0;
  most = std::min(most, pool.reserved - static_cast<std::size_t>(least));
  const std::size_t given = take_free(pool, most / settings().granularity * settings().granularity, may);
  pool.reserved -= given;
  memory().discharge(pool.device, given);
}

// Bytes for a block: free ones first, then the device's.
bool reserve(Pool& pool, std::size_t size, const StreamRef& stream) {
  const std::size_t reused =
      take_free(pool, size, [&](const Free& f) { return f.freed.stream == stream || is_done(f.freed); });
  const std::size_t more = up(size - reused, settings().granularity);
  if (memory().charge(pool.device, more)) {
    pool.reserved += more;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
    if (const std::size_t rest = reused + more - size; rest != 0) pool.free.push_back({rest, {}});
    return true;
  }
  if (reused != 0) pool.free.push_front({reused, {}});
  return false;
}

hipError_t allocate(Lock& lock, Pool& pool, std::size_t size, const StreamRef& stream, void** out) {
  if (stream->capture) return invalidate(stream->capture, hipErrorStreamCaptureUnsupported);
  const std::size_t counted = up(size, kUnit);
  if (!reserve(pool, counted, stream)) {
    if (!release_pools(lock, pool.device) || !reserve(pool, counted, stream)) return note(hipErrorOutOfMemory);
  }
  if (const hipError_t error = memory().allocate(Kind::ordered, pool.device, size, out, &pool, pool.access);
      error != hipSuccess) {
    pool.free.push_front({counted, {}});
    return note(error);
  }
  pool.used += counted;
  pool.used_high = std::max(pool.used_high, pool.used);
  void* base = *out;
  return push(lock, stream, "hipMallocAsync", [base] { memory().begin_life(base); });
}

hipError_t release(Lock& lock, void* pointer, const StreamRef& stream) {
  if (stream->capture) return invalidate(stream->capture, hipErrorStreamCaptureUnsupported);
  const std::optional<Block> there = memory().find(pointer);
  if (!there || there->kind != Kind::ordered) return note(hipErrorInvalidValue);
  const std::optional<Block> block = memory().begin_free(pointer);
  if (!block) return note(hipErrorInvalidValue);
  give_to_pool(*block, {stream, stream->enqueued + 1});
  return push(lock, stream, "hipFreeAsync", [pointer] {
    const std::optional<Block> now = memory().find(pointer);
    if (now && now->coming) fault("frees memory " + memory().describe(now->base) + ", before it is allocated");
    memory().end_free(pointer);
  });
}

hipError_t set(Pool& pool, hipMemPoolAttr what, const void* value) {
  const auto number = *static_cast<const std::uint64_t*>(value);
  switch (what) {
    case hipMemPoolAttrReleaseThreshold: pool.threshold = number; return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
      if (number != 0) return note(hipErrorInvalidValue);
      pool.reserved_high = pool.reserved;
      return hipSuccess;
    case hipMemPoolAttrUsedMemHigh:
      if (number != 0) return note(hipErrorInvalidValue);
      pool.used_high = pool.used;
      return hipSuccess;
    default: return note(hipErrorInvalidValue);
  }
}

hipError_t get(const Pool& pool, hipMemPoolAttr what, void* value) {
  auto* number = static_cast<std::uint64_t*>(value);
  switch (what) {
    case hipMemPoolAttrReleaseThreshold: *number = pool.threshold; return hipSuccess;
    case hipMemPoolAttrReservedMemCurrent: *number = pool.reserved; return hipSuccess;
    case hipMemPoolAttrReservedMemHigh: *number = pool.reserved_high; return hipSuccess;
    case hipMemPoolAttrUsedMemCurrent: *number = pool.used; return hipSuccess;
    case hipMemPoolAttrUsedMemHigh: *number = pool.used_high; return hipSuccess;
    default: return note(hipErrorInvalidValue);
  }
}

hipError_t set_access(Pool& pool, const hipMemAccessDesc* wanted, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const hipMemLocation& place = wanted[i].location;
    const bool known = place.type == hipMemLocationTypeDevice && is_device(place.id);
    const bool may = wanted[i].flags == hipMemAccessFlagsProtReadWrite;
    if (!known || (!may && place.id == pool.device)) return note(hipErrorInvalidValue);
    const std::uint64_t bit = std::uint64_t{1} << place.id;
    pool.access = may ? pool.access | bit : pool.access & ~bit;
  }
  memory().set_pool_access(&pool, pool.access);
  return hipSuccess;
}

hipError_t refuse_unsupported() {
  return settings().memory_pools ? refuse_lost(current_device) : note(hipErrorNotSupported);
}

// Where no pool is named, the device's current one serves.
hipError_t allocate_from(hipMemPool_t handle, void** out, std::size_t size, hipStream_t stream_handle) {
  if (const hipError_t error = refuse_unsupported(); error != hipSuccess) return error;
  *out = nullptr;
  Lock lock(machine().mutex);
  StreamRef stream;
  if (const hipError_t error = find(stream_handle, &stream); error != hipSuccess || size == 0) return error;
  Pool* pool = handle == nullptr ? current_pool(stream->device) : pool_of(handle);
  return pool != nullptr ? allocate(lock, *pool, size, stream, out) : note(hipErrorInvalidValue);
}

}  // namespace

void give_to_pool(const Block& block, const Ticket& freed) {
  Pool& pool = *static_cast<Pool*>(block.pool);
  pool.used -= block.counted;
  pool.free.push_back({block.counted, freed});
}

void trim_pools_after_wait(int device) {
  for (Pool& pool : pools()) {
    if (pool.device == device && !pool.free.empty()) trim(pool, pool.threshold);
  }
  pools().remove_if([](const Pool& pool) { return pool.destroyed && pool.reserved == 0; });
}

bool release_pools(Lock& lock, int device) {
  std::vector<Ticket> frees;
  for (const Pool& pool : pools()) {
    if (pool.device != device) continue;
    for (const Free& free : pool.free) frees.push_back(free.freed);
  }
  for (const Ticket& freed : frees) {
    if (wait_for(lock, freed) != hipSuccess) return false;
  }
  for (Pool& pool : pools()) {
    if (pool.device == device) trim(pool, 0);
  }
  return !frees.empty();
}

}  // namespace simhip

using simhip::Lock;
using simhip::machine;
using simhip::note;

extern "C" {

hipError_t hipMallocFromPoolAsync(void** out, std::size_t size, hipMemPool_t pool, hipStream_t stream) {
  simhip::refuse_gil(__func__);
  return simhip::allocate_from(pool, out, size, stream);
}

hipError_t hipMallocAsync(void** out, std::size_t size, hipStream_t stream) {
  simhip::refuse_gil(__func__);
  return simhip::allocate_from(nullptr, out, size, stream);
}

hipError_t hipFreeAsync(void* pointer, hipStream_t handle) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  if (pointer == nullptr) return hipSuccess;
  Lock lock(machine().mutex);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  return simhip::release(lock, pointer, stream);
}

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* out, int device) {
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  if (!simhip::is_device(device)) return note(hipErrorInvalidDevice);
  *out = simhip::handle_of(simhip::default_pool(device));
  return hipSuccess;
}

hipError_t hipDeviceGetMemPool(hipMemPool_t* out, int device) {
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  if (!simhip::is_device(device)) return note(hipErrorInvalidDevice);
  const Lock lock(machine().mutex);
  *out = simhip::handle_of(*simhip::current_pool(device));
  return hipSuccess;
}

hipError_t hipDeviceSetMemPool(int device, hipMemPool_t handle) {
  const Lock lock(machine().mutex);
  simhip::Pool* pool = simhip::pool_of(handle);
  if (pool == nullptr || pool->device != device) return note(hipErrorInvalidValue);
  simhip::current_pool(device) = pool;
  return hipSuccess;
}

hipError_t hipMemPoolCreate(hipMemPool_t* out, const hipMemPoolProps* properties) {
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  const hipMemLocation& place = properties->location;
  const bool known = place.type == hipMemLocationTypeDevice && simhip::is_device(place.id);
  if (!known || properties->allocType != hipMemAllocationTypePinned) return note(hipErrorInvalidValue);
  const Lock lock(machine().mutex);
  simhip::Pool& pool = simhip::pools().emplace_back();
  pool.device = place.id;
  *out = simhip::handle_of(pool);
  return hipSuccess;
}

hipError_t hipMemPoolDestroy(hipMemPool_t handle) {
  const Lock lock(machine().mutex);
  simhip::Pool* pool = simhip::pool_of(handle);
  if (pool == nullptr || pool == &simhip::default_pool(pool->device)) return note(hipErrorInvalidValue);
  if (simhip::current_pool(pool->device) == pool) simhip::current_pool(pool->device) = nullptr;
  pool->destroyed = true;
  pool->threshold = 0;
  simhip::trim_pools_after_wait(pool->device);
  return hipSuccess;
}

hipError_t hipMemPoolSetAccess(hipMemPool_t handle, const hipMemAccessDesc* wanted, std::size_t count) {
  const Lock lock(machine().mutex);
  simhip::Pool* pool = simhip::pool_of(handle);
  return pool != nullptr && wanted != nullptr ? simhip::set_access(*pool, wanted, count) : note(hipErrorInvalidValue);
}

hipError_t hipMemPoolSetAttribute(hipMemPool_t handle, hipMemPoolAttr what, void* value) {
  const Lock lock(machine().mutex);
  simhip::Pool* pool = simhip::pool_of(handle);
  return pool != nullptr && value != nullptr ? simhip::set(*pool, what, value) : note(hipErrorInvalidValue);
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t handle, hipMemPoolAttr what, void* value) {
  const Lock lock(machine().mutex);
  const simhip::Pool* pool = simhip::pool_of(handle);
  return pool != nullptr && value != nullptr ? simhip::get(*pool, what, value) : note(hipErrorInvalidValue);
}

hipError_t hipMemPoolTrimTo(hipMemPool_t handle, std::size_t least) {
  simhip::refuse_gil(__func__);
  const Lock lock(machine().mutex);
  simhip::Pool* pool = simhip::pool_of(handle);
  if (pool == nullptr) return note(hipErrorInvalidValue);
  simhip::trim(*pool, least);
  return hipSuccess;
}

}  // extern "C"
