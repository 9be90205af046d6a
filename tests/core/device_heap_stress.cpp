// What a pool takes of a device while the host runs out of memory; for sanitizer builds (make asan).
//
// In each request, and in half of the programs in each free, one `new` fails, and some calls of the driver. The account
// of the heap still equals what the device has given out, and no two blocks overlap. At the end the device has all
// memory back, except that of pages with blocks whose free the host had no memory to note. An arena in virtual memory
// has memory where it says, and no block there, and CudaMemory knows each block that it has taken.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "cuda_memory.hpp"
#include "device_heap.hpp"
#include "heap_arena.hpp"
#include "simulated_cuda.hpp"

using namespace simulated;

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

CudaError fault() { return Cuda::get().fails() ? kCudaOutOfMemory : kCudaSuccess; }

struct Owner final : DeviceHeap::Owner {
  CudaError mark(std::vector<CudaEvent>&, std::size_t& used) override { return used = 0, fault(); }
  CudaError order(Stream, CudaEvent) override { return fault(); }
  CudaError end_left(bool) override { return kCudaSuccess; }
  CudaError synchronize() override { return fault(); }
  bool is_capturing() override { return false; }
} owner;

// An arena begins and ends in the midst of pages, which then go: it takes nothing below its base, and whole pages, also
// where it reaches further since.
void keep_to_the_base(bool reaches) {
  const CudaApi api = Cuda::get().api();
  DeviceHeap heap(api, 0, owner);
  heap.use({api, 1024 * DeviceHeap::kPage, {0}, false});
  const Bytes page = DeviceHeap::kPage, size = page * 9 / 8;
  DeviceHeap::Place first, other;
  heap.take(2 * page, 0, first);
  heap.give(first);
  heap.take(page * 3 / 4, 0, other);
  const auto arena = HeapArena::place(heap, size, 0);
  heap.give(other);
  heap.trim();
  if (reaches && !arena->reach_to(3 * page)) fail("an arena does not reach over what is free");
  arena->extend(0, size, size, false);
  const std::vector<Range> memory = arena->memory();
  if (memory.empty() || arena->base() % page == 0) fail("the arena begins with a page");
  if (memory.front().begin < arena->base()) fail("an arena has memory below its base");
}

// Places, moves, extends, shrinks or ends an arena.
void change(std::unique_ptr<HeapArena>& arena, DeviceHeap& heap, std::mt19937& random) {
  const auto bytes = [&](Bytes most) {
    return static_cast<Bytes>(random() % static_cast<unsigned>(most / DeviceHeap::kUnit) + 1) * DeviceHeap::kUnit;
  };
  const Bytes one = bytes(6 * DeviceHeap::kPage), other = bytes(6 * DeviceHeap::kPage);
  if (arena == nullptr) {
    arena = HeapArena::place(heap, one, random() % 2);
    return;
  }
  switch (random() % 6) {
    case 0: return arena.reset();
    case 1: return arena->use(random() % 3);
    case 2: arena->reach_to(one); return;
    case 3: {
      std::vector<Range> idle = arena->memory();
      for (Range& range : idle) range.end = range.begin + (range.end - range.begin) / 1024 * 512;
      idle.erase(std::remove_if(idle.begin(), idle.end(), [](Range range) { return range.begin == range.end; }),
                 idle.end());
      return arena->give(idle);
    }
    default: arena->extend(std::min(one, other), std::max(one, other), bytes(DeviceHeap::kPage), random() % 2 == 0);
  }
}

void run(unsigned seed) {
  CudaApi api = Cuda::get().api();
  api.has_virtual_memory = seed / 4 % 2 == 0;
  std::mt19937 random(seed);
  {
    DeviceHeap heap(api, 0, owner);
    heap.use({api, 1024 * DeviceHeap::kPage, {0}, false});
    std::vector<DeviceHeap::Place> blocks;
    std::unique_ptr<HeapArena> arenas[2];
    const bool frees_fail = seed % 4 < 2;
    if (seed % 2 == 0) heap.set_limit(8 * DeviceHeap::kPage);
    for (int operation = 0; operation < 400; ++operation) {
      const int allocations = static_cast<int>(random() % 12);
      Cuda::get().fault_rate = seed % 3 == 0 ? 8 : 0;
      if (random() % 2 == 0 && !blocks.empty()) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        survives(frees_fail ? allocations : -1, [&] { heap.give(blocks.back()); });
        blocks.pop_back();
      } else {
        const Bytes most = random() % 2 == 0 ? DeviceHeap::kPage / 2 : 3 * DeviceHeap::kPage;
        DeviceHeap::Place place;
        CudaError error = kCudaSuccess;
        const auto take = [&] {
          error = heap.take(static_cast<Bytes>(random() % static_cast<unsigned>(most)) + 1, random() % 2, place);
        };
        if (survives(allocations, take) && error == kCudaSuccess) {
          for (const DeviceHeap::Place& other : blocks) {
            const bool apart = place.address + static_cast<std::uintptr_t>(place.size) <= other.address ||
                               other.address + static_cast<std::uintptr_t>(other.size) <= place.address;
            if (!apart) fail("two blocks overlap");
          }
          if (!Cuda::get().has(place.address, place.address + static_cast<std::uintptr_t>(place.size)))
            fail("a block has no memory");
          blocks.push_back(place);
        }
      }
      if (random() % 16 == 0) heap.begin_step();
      if (random() % 16 == 0) survives(allocations, [&] { heap.make_room(); });
      if (random() % 16 == 0) survives(allocations, [&] { heap.leave(random() % 2, nullptr); });
      if (heap.is_virtual() && random() % 4 == 0)
        survives(allocations, [&] { change(arenas[random() % 2], heap, random); });
      std::vector<Range> taken;
      for (const auto& arena : arenas) {
        for (const Range range : arena != nullptr ? arena->memory() : std::vector<Range>{}) {
          if (!Cuda::get().has(range.begin, range.end)) fail("an arena has no memory");
          for (const Range other : taken) {
            if (range.intersects(other)) fail("two arenas have the same memory");
          }
          taken.push_back(range);
          for (const DeviceHeap::Place& block : blocks) {
            const auto end = block.address + static_cast<std::uintptr_t>(block.size);
            if (range.intersects({block.address, end})) fail("a block lies in an arena");
          }
        }
      }
      if (heap.held() != Cuda::get().in_use()) fail("the account is not the device's");
    }
    Cuda::get().fault_rate = 0;
    for (const DeviceHeap::Place& block : blocks) heap.give(block);
    for (auto& arena : arenas) arena.reset();
    heap.trim();
    if (heap.held() != Cuda::get().in_use()) fail("the account is not the device's in the end");
    if (!frees_fail && heap.held() != 0) fail("memory that no block has did not go back");
  }
  if (Cuda::get().events != 0) fail("an event did not go back");
  Cuda::get().forget();
}

void run_memory(unsigned seed) {
  const CudaApi api = Cuda::get().api();
  CudaMemory memory(api, 0, 0);
  std::mt19937 random(seed);
  std::vector<CudaBlock*> blocks;
  for (int operation = 0; operation < 100; ++operation) {
    CudaBlock* block = nullptr;
    CudaError error = kCudaSuccess;
    const Bytes size = static_cast<Bytes>(random() % 2 + 1) * DeviceHeap::kPage;
    survives(static_cast<int>(random() % 6), [&] { block = memory.take({size}, error); });
    if (block != nullptr) blocks.push_back(block);
  }
  for (CudaBlock* block : blocks) memory.give(block);
  memory.trim();
  if (Cuda::get().in_use() != 0) fail("memory of a block that was not noted did not go back");
}

}  // namespace

void* operator new(std::size_t size) {
  if (Cuda::inside == 0 && allocations_left >= 0 && allocations_left-- == 0) {
    ++failed;
    throw std::bad_alloc();
  }
  if (void* address = std::malloc(size)) return address;
  throw std::bad_alloc();
}
void operator delete(void* address) noexcept { std::free(address); }
void operator delete(void* address, std::size_t) noexcept { std::free(address); }

int main(int argc, char** argv) {
  Cuda::page = static_cast<std::size_t>(DeviceHeap::kPage);
  for (const bool reaches : {false, true}) keep_to_the_base(reaches);
  const unsigned programs = 50 * static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 1);
  for (unsigned seed = 0; seed < programs; ++seed) {
    run(seed);
    run_memory(seed);
  }
  if (failed < programs) fail("too few allocations failed");
  std::printf("device_heap_stress: %llu allocations failed, no byte lost\n", static_cast<unsigned long long>(failed));
  return 0;
}
