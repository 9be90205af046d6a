// The heap of large host blocks beside a plain account of it: contents, zeros, what stays resident within a period
// and after it, what is passed on; at random, and with several threads at once.
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "host_heap.hpp"
#include "stress.hpp"

namespace {

using stowplan::Upstream;
using stowplan::allocator::HostHeap;
using stress::require;

constexpr int kChanges = 20000;
constexpr std::size_t kMost = std::size_t{1} << 21;

std::atomic<std::int64_t> passed_on{0};
std::int64_t now = 1;

void* up_malloc(void*, std::size_t size) { return ++passed_on, std::malloc(size); }
void* up_calloc(void*, std::size_t n, std::size_t size) { return ++passed_on, std::calloc(n, size); }
void* up_realloc(void*, void* p, std::size_t size) { return std::realloc(p, size); }
void up_free(void*, void* p, std::size_t) { --passed_on, std::free(p); }
const Upstream kUpstream{nullptr, up_malloc, up_calloc, up_realloc, up_free};

struct Block {
  unsigned char* ptr;
  std::size_t size;
  unsigned char byte;

  // The first byte of each page, and the last byte.
  template <class F>
  void each(F&& f) const {
    for (std::size_t at = 0; at < size; at += 4096) f(ptr[at]);
    f(ptr[size - 1]);
  }
  void fill() const {
    each([&](unsigned char& x) { x = byte; });
  }
  void check() const {
    each([&](unsigned char x) { require(x == byte, "a block keeps its bytes"); });
  }
};

Block ask(HostHeap& heap, std::mt19937_64& random) {
  const std::size_t size = 1 + random() % (random() % 4 == 0 ? kMost : 4 * HostHeap::kLeast);
  const bool zeroed = random() % 3 == 0;
  auto* ptr = static_cast<unsigned char*>(zeroed ? heap.calloc(1, size) : heap.malloc(size));
  require(ptr != nullptr, "there is memory");
  require(heap.owns(ptr) == (size >= HostHeap::kLeast), "small blocks are passed on, and only these");
  const Block block{ptr, size, static_cast<unsigned char>(1 + random() % 255)};
  if (zeroed) block.each([](unsigned char x) { require(x == 0, "calloc gives zeros"); });
  block.fill();
  return block;
}

void resize(HostHeap& heap, Block& block, std::mt19937_64& random) {
  const std::size_t size = 1 + random() % kMost;
  block.ptr = static_cast<unsigned char*>(heap.realloc(block.ptr, size));
  require(block.ptr != nullptr, "there is memory");
  const std::size_t kept = std::min(size, block.size);
  block.size = kept;
  for (std::size_t at = 0; at < kept - 1; at += 4096) require(block.ptr[at] == block.byte, "resizing keeps the bytes");
  block.size = size;
  block.fill();
}

void change(HostHeap& heap, std::vector<Block>& live, std::mt19937_64& random, std::size_t most) {
  if (live.size() < most && random() % 2 == 0) {
    live.push_back(ask(heap, random));
    return;
  }
  if (live.empty()) return;
  Block& block = live[random() % live.size()];
  block.check();
  if (random() % 8 == 0) return resize(heap, block, random);
  heap.free(block.ptr, random() % 2 == 0 ? block.size : 0);  // the size is a guess
  std::swap(block, live.back());
  live.pop_back();
}

void drop_all(HostHeap& heap, std::vector<Block>& live) {
  for (const Block& block : live) {
    block.check();
    heap.free(block.ptr, block.size);
  }
  live.clear();
}

std::size_t resident(const void* begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  require(mincore(const_cast<void*>(begin), bytes, pages.data()) == 0, "the range is mapped");
  std::size_t count = 0;
  for (const unsigned char page : pages) count += page & 1u;
  return count * 4096;
}

void at_random(std::uint64_t seed) {
  HostHeap heap(kUpstream, [] { return now; });
  std::mt19937_64 random(seed);
  std::vector<Block> live;
  for (int i = 0; i < kChanges; ++i) {
    change(heap, live, random, 60);
    if (i % 500 == 0) now += HostHeap::kPeriod;
    if (i % 3000 == 0) heap.release();
    if (i % 100 == 0) heap.assert_invariants();
  }
  drop_all(heap, live);
  heap.assert_invariants();
  require(heap.in_use() == 0, "nothing is in use when all is free");
  require(passed_on == 0, "what was passed on is freed there");
}

void bounded() {
  HostHeap heap(kUpstream, [] { return now; });
  constexpr std::size_t kLarge = std::size_t{48} << 20, kSmall = std::size_t{1} << 20;
  auto* large = static_cast<char*>(heap.malloc(kLarge));
  std::memset(large, 1, kLarge);
  heap.free(large, kLarge);
  require(resident(large, kLarge) == kLarge, "what is freed stays");
  require(heap.malloc(kLarge) == large, "and is taken again");
  heap.free(large, kLarge);
  for (int period = 0; period < 3; ++period) {
    now += HostHeap::kPeriod;
    void* small = heap.malloc(kSmall);
    std::memset(small, 1, kSmall);
    heap.free(small, kSmall);
  }
  require(resident(large, kLarge) <= 2 * kSmall, "two periods later no more stays than was in use in them");
  require(heap.counts().resident == resident(large, kLarge), "and the heap knows it");
  require(heap.counts().peak_resident == kLarge && heap.counts().peak_in_use == kLarge, "and the most there was");
  heap.release();
  require(resident(large, kLarge) == 0, "release() leaves nothing");

  void* lasting = heap.malloc(kLarge / 2);
  void* going = heap.malloc(kSmall);
  std::memset(lasting, 1, kLarge / 2);
  heap.release();
  heap.free(lasting, kLarge / 2);
  require(resident(lasting, kLarge / 2) == 0, "nor does what is freed soon after");
  for (int period = 0; period < 2; ++period) {
    now += HostHeap::kPeriod;
    heap.tick();
  }
  std::memset(going, 1, kSmall);
  heap.free(going, kSmall);
  require(resident(going, kSmall) == kSmall, "later it stays again");

  require(heap.malloc(kLarge) == large, "there is room again");
  std::memset(large, 1, kLarge);
  heap.free(large, kLarge);
  for (int period = 0; period < 3; ++period) {
    now += HostHeap::kPeriod;
    heap.tick();
  }
  require(resident(large, kLarge) == 0, "time alone is enough");

  auto* zeros = static_cast<char*>(heap.calloc(1, kLarge));
  require(zeros == large && zeros[0] == 0 && zeros[kLarge - 1] == 0, "calloc of what was used before gives zeros");
  require(resident(zeros, kLarge) <= std::size_t{4} << 20, "and writes none of a large block's");
  heap.free(zeros, kLarge);
  require(heap.extent() <= kLarge, "the heap has not grown");
}

// A block that is taken by turns in two places, within one period.
void in_two_places() {
  HostHeap heap(kUpstream, [] { return now; });
  constexpr std::size_t kKept = std::size_t{52} << 20, kBlock = std::size_t{12} << 20, kPin = HostHeap::kLeast;
  void* kept = heap.malloc(kKept);
  void* block = heap.malloc(kBlock);
  void* fence = heap.malloc(kPin);
  heap.free(block, kBlock);
  const auto turn = [&](bool pinned) {
    void* pin = pinned ? heap.malloc(kPin) : nullptr;
    block = heap.malloc(kBlock);
    const std::size_t resident = heap.counts().resident;
    heap.free(block, kBlock);
    if (pinned) heap.free(pin, kPin);
    return resident;
  };
  const std::size_t most = kKept + kBlock + 2 * kPin + HostHeap::kSlack;
  for (const bool pinned : {false, true, false}) require(turn(pinned) <= most, "at first a slack is kept");
  for (const bool pinned : {true, false}) turn(pinned);
  for (const bool pinned : {true, false}) require(turn(pinned) > most, "what is wanted again and again stays");
  now += HostHeap::kPeriod;
  heap.tick();
  require(heap.counts().resident <= most, "until the period ends");
  heap.free(fence, kPin);
  heap.free(kept, kKept);
}

void by_threads() {
  HostHeap heap(kUpstream);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&heap, t] {
      std::mt19937_64 random(100 + static_cast<std::uint64_t>(t));
      std::vector<Block> live;
      for (int i = 0; i < kChanges / 8; ++i) change(heap, live, random, 12);
      drop_all(heap, live);
    });
  }
  for (std::thread& thread : threads) thread.join();
  heap.assert_invariants();
  require(heap.in_use() == 0 && passed_on == 0, "threads leave nothing behind");
}

}  // namespace

int main() {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) at_random(seed);
  bounded();
  in_two_places();
  by_threads();
  std::puts("heap_stress: ok");
}
