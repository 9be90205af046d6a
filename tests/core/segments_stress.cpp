// What a pool takes of a device while the host runs out of memory; for sanitizer builds (make asan).
//
// In each request, and in half of the programs in each free, one `new` fails. The account of the segments still equals
// what the device has given out, and no two blocks overlap. At the end the device has all memory back, except that of
// blocks whose free the host had no memory to note. An arena in virtual memory knows each page that it has mapped, and
// CudaMemory knows each block that it has taken.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <random>
#include <vector>

#include "cuda_memory.hpp"
#include "segments.hpp"
#include "stress.hpp"
#include "virtual_arena.hpp"

using namespace stowplan::allocator;
using stress::fail;

namespace {

thread_local int allocations_left = -1;  // until one fails; below 0: none does
std::uint64_t failed = 0;

// Runs a call of the pool's of which an allocation fails, or none if it makes fewer. Whether it did not throw.
template <class F>
bool survives(int allocations, F&& f) {
  allocations_left = allocations;
  bool survived = true;
  try {
    f();
  } catch (const std::bad_alloc&) {
    survived = false;
  }
  allocations_left = -1;
  return survived;
}

// A driver that gives out addresses, and knows what it has given.
struct Driver {
  static inline std::map<std::uintptr_t, Bytes> given;
  static inline std::uintptr_t next = std::uintptr_t{1} << 40;
  static inline Bytes created = 0, mapped = 0;  // of virtual memory

  static Bytes in_use() {
    Bytes bytes = 0;
    for (const auto& [address, size] : given) bytes += size;
    return bytes;
  }
  static CudaApi api() {
    CudaApi api;
    api.malloc = [](void** ptr, std::size_t size) {
      const int left = std::exchange(allocations_left, -1);
      given[next] = static_cast<Bytes>(size);
      allocations_left = left;
      *ptr = reinterpret_cast<void*>(next);
      next += size;
      return kCudaSuccess;
    };
    api.free = [](void* ptr) {
      if (given.erase(reinterpret_cast<std::uintptr_t>(ptr)) != 1) fail("memory went back twice");
      return kCudaSuccess;
    };
    api.exchange_capture_mode = [](int*) { return kCudaSuccess; };
    api.get_device = [](int* device) { return *device = 0, kCudaSuccess; };
    api.stream_is_capturing = [](CudaStream, int* status) { return *status = kCudaCaptureNone, kCudaSuccess; };
    api.has_virtual_memory = true;
    api.granularity = [](std::size_t* page, const MemoryProperties*, int) {
      return *page = static_cast<std::size_t>(Segments::kPage), kCudaSuccess;
    };
    api.reserve = [](void** address, std::size_t size, std::size_t, void*, unsigned long long) {
      *address = reinterpret_cast<void*>(next);
      next += size;
      return kCudaSuccess;
    };
    api.unreserve = [](void*, std::size_t) { return kCudaSuccess; };
    api.create = [](MemoryHandle* handle, std::size_t size, const MemoryProperties*, unsigned long long) {
      created += static_cast<Bytes>(size);
      return *handle = size, kCudaSuccess;
    };
    api.release = [](MemoryHandle size) { return created -= static_cast<Bytes>(size), kCudaSuccess; };
    api.map = [](void*, std::size_t size, std::size_t, MemoryHandle, unsigned long long) {
      return mapped += static_cast<Bytes>(size), kCudaSuccess;
    };
    api.unmap = [](void*, std::size_t size) { return mapped -= static_cast<Bytes>(size), kCudaSuccess; };
    api.set_access = [](void*, std::size_t, const MemoryAccess*, std::size_t) { return kCudaSuccess; };
    return api;
  }
};

void run(unsigned seed) {
  const CudaApi api = Driver::api();
  Segments segments(api, 0, [](void*) { return true; }, nullptr);
  std::mt19937 random(seed);
  std::vector<Segments::Place> blocks;
  const bool frees_fail = seed % 4 < 2;
  if (seed % 2 == 0) segments.set_limit(8 * Segments::kPage);
  for (int operation = 0; operation < 400; ++operation) {
    const int allocations = static_cast<int>(random() % 6);
    if (random() % 2 == 0 && !blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      survives(frees_fail ? allocations : -1, [&] { segments.give(blocks.back()); });
      blocks.pop_back();
    } else {
      const Bytes most = random() % 2 == 0 ? Segments::kPage / 2 : 3 * Segments::kPage;
      Segments::Place place;
      CudaError error = kCudaSuccess;
      const auto take = [&] {
        error = segments.take(static_cast<Bytes>(random() % static_cast<unsigned>(most)) + 1, random() % 2, place);
      };
      if (survives(allocations, take) && error == kCudaSuccess) {
        for (const Segments::Place& other : blocks) {
          const bool apart = place.address + static_cast<std::uintptr_t>(place.size) <= other.address ||
                             other.address + static_cast<std::uintptr_t>(other.size) <= place.address;
          if (!apart) fail("two blocks overlap");
        }
        blocks.push_back(place);
      }
    }
    if (random() % 16 == 0) segments.begin_step();
    if (segments.held() != Driver::in_use()) fail("the account is not the device's");
  }
  for (const Segments::Place& block : blocks) segments.give(block);
  segments.trim();
  if (segments.held() != Driver::in_use()) fail("the account is not the device's in the end");
  if (!frees_fail && segments.held() != 0) fail("memory that no block has did not go back");
  Driver::given.clear();
}

void run_arena(unsigned seed) {
  constexpr Bytes kReach = 64 * Segments::kPage;
  auto arena = VirtualArena::reserve({Driver::api(), kReach, {0}});
  std::mt19937 random(seed);
  const auto page = [&] { return static_cast<Bytes>(random() % 65) * Segments::kPage; };
  for (int operation = 0; operation < 100; ++operation) {
    const Bytes one = page(), other = page(), begin = std::min(one, other), end = std::max(one, other);
    if (random() % 3 == 0) {
      arena->shrink(
          {{arena->base() + static_cast<std::uintptr_t>(begin), arena->base() + static_cast<std::uintptr_t>(end)}},
          page());
    } else {
      survives(static_cast<int>(random() % 4), [&] { arena->extend(begin, end, page()); });
    }
    if (arena->mapped() != Driver::mapped || Driver::created != Driver::mapped)
      fail("the arena does not know its memory");
  }
  arena.reset();
  if (Driver::mapped != 0 || Driver::created != 0) fail("memory of an arena did not go back");
}

void run_memory(unsigned seed) {
  const CudaApi api = Driver::api();
  CudaMemory memory(api, 0, 0);
  std::mt19937 random(seed);
  std::vector<CudaBlock*> blocks;
  for (int operation = 0; operation < 100; ++operation) {
    CudaBlock* block = nullptr;
    CudaError error = kCudaSuccess;
    const Bytes size = static_cast<Bytes>(random() % 2 + 1) * Segments::kPage;
    survives(static_cast<int>(random() % 6), [&] { block = memory.take(size, 0, error); });
    if (block != nullptr) blocks.push_back(block);
  }
  for (CudaBlock* block : blocks) memory.give(block);
  memory.trim();
  if (Driver::in_use() != 0) fail("memory of a block that was not noted did not go back");
}

}  // namespace

void* operator new(std::size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    ++failed;
    throw std::bad_alloc();
  }
  if (void* address = std::malloc(size)) return address;
  throw std::bad_alloc();
}
void operator delete(void* address) noexcept { std::free(address); }
void operator delete(void* address, std::size_t) noexcept { std::free(address); }

int main(int argc, char** argv) {
  const unsigned programs = 50 * static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 1);
  for (unsigned seed = 0; seed < programs; ++seed) {
    run(seed);
    run_arena(seed);
    run_memory(seed);
  }
  if (failed < programs) fail("too few allocations failed");
  std::printf("segments_stress: %llu allocations failed, no byte lost\n", static_cast<unsigned long long>(failed));
  return 0;
}
