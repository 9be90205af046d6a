#include "pools.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>

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
  std::uint64_t threshold = 0;
  std::size_t used = 0;
  std::size_t used_high = 0;
  std::size_t reserved = 0;
  std::size_t reserved_high = 0;
  std::deque<Free> free;  // oldest first
};

std::deque<Pool>& pools() {
  static auto* all = [] {
    auto* made = new std::deque<Pool>(static_cast<std::size_t>(settings().devices));
    for (std::size_t i = 0; i < made->size(); ++i) (*made)[i].device = static_cast<int>(i);
    return made;
  }();
  return *all;
}

Pool* pool_of(hipMemPool_t handle) {
  for (Pool& pool : pools()) {
    if (reinterpret_cast<hipMemPool_t>(&pool) == handle) return &pool;
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

// Gives free bytes back until the pool holds no more than `least`.
void trim(Pool& pool, std::uint64_t least) {
  if (pool.reserved <= least) return;
  const std::size_t given =
      take_free(pool, pool.reserved - static_cast<std::size_t>(least), [](const Free& f) { return is_done(f.freed); });
  pool.reserved -= given;
  memory().discharge(pool.device, given);
}

// Bytes for a block: free ones first, then the device's.
bool reserve(Pool& pool, std::size_t size, const StreamRef& stream) {
  const std::size_t reused =
      take_free(pool, size, [&](const Free& f) { return f.freed.stream == stream || is_done(f.freed); });
  if (memory().charge(pool.device, size - reused)) {
    pool.reserved += size - reused;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
    return true;
  }
  if (reused != 0) pool.free.push_front({reused, {}});
  return false;
}

hipError_t allocate(Lock& lock, Pool& pool, std::size_t size, const StreamRef& stream, void** out) {
  if (stream->capture) return invalidate(stream->capture, hipErrorStreamCaptureUnsupported);
  const std::size_t unit = settings().granularity;
  const std::size_t counted = (size + unit - 1) / unit * unit;
  if (!reserve(pool, counted, stream)) {
    if (!release_pool(lock, pool.device) || !reserve(pool, counted, stream)) return note(hipErrorOutOfMemory);
  }
  if (const hipError_t error = memory().allocate(Kind::ordered, pool.device, size, out); error != hipSuccess) {
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

hipError_t refuse_unsupported() {
  return settings().memory_pools ? refuse_lost(current_device) : note(hipErrorNotSupported);
}

}  // namespace

void give_to_pool(const Block& block, const Ticket& freed) {
  Pool& pool = pools()[static_cast<std::size_t>(block.device)];
  pool.used -= block.counted;
  pool.free.push_back({block.counted, freed});
}

void trim_pool_after_wait(int device) {
  Pool& pool = pools()[static_cast<std::size_t>(device)];
  if (!pool.free.empty()) trim(pool, pool.threshold);
}

bool release_pool(Lock& lock, int device) {
  Pool& pool = pools()[static_cast<std::size_t>(device)];
  if (pool.free.empty()) return false;
  std::vector<Ticket> frees;
  for (const Free& free : pool.free) frees.push_back(free.freed);
  for (const Ticket& freed : frees) {
    if (wait_for(lock, freed) != hipSuccess) return false;
  }
  trim(pool, 0);
  return true;
}

}  // namespace simhip

using simhip::Lock;
using simhip::machine;
using simhip::note;

extern "C" {

hipError_t hipMallocAsync(void** out, std::size_t size, hipStream_t handle) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::refuse_unsupported(); error != hipSuccess) return error;
  *out = nullptr;
  if (size == 0) return hipSuccess;
  Lock lock(machine().mutex);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  simhip::Pool& pool = simhip::pools()[static_cast<std::size_t>(stream->device)];
  return simhip::allocate(lock, pool, size, stream, out);
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
  *out = reinterpret_cast<hipMemPool_t>(&simhip::pools()[static_cast<std::size_t>(device)]);
  return hipSuccess;
}

hipError_t hipDeviceGetMemPool(hipMemPool_t* out, int device) { return hipDeviceGetDefaultMemPool(out, device); }

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
