// The core under its own containers: this program's operator new and delete are what malloc and free are in a process
// with ../../allocator/preload.cpp, so each vector that grows under a lock of the core comes back to the core.
//
// Threads ask, resize, swap and free large blocks, so many that the containers are large blocks themselves; one takes
// outcomes, and one forks. Every block carries a byte pattern that is checked when it dies.
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "locked_lanes.hpp"
#include "under_malloc.hpp"

using namespace stowplan::allocator;

namespace {

constexpr std::size_t kLeast = HostHeap::kLeast;
constexpr std::size_t kPage = UnderMalloc::kPage;

std::atomic<const MallocTable*> table{nullptr};
std::atomic<std::uint64_t> asked_inside{0}, freed_libc{0};  // large blocks: asked for under a lock; given back

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "under_malloc_stress: %s\n", what);
  std::_Exit(1);
}

// ------------------------------------------------------------------------------- what preload.cpp is in a process

void* libc_malloc(void*, std::size_t size) {
  if (size < kLeast) return std::malloc(size);
  void* found = nullptr;
  if (posix_memalign(&found, kPage, size) != 0) return nullptr;
  if (stowplan::profiler::SpinLock::is_any_held()) ++asked_inside;
  return found;
}
void* libc_calloc(void* ctx, std::size_t n, std::size_t size) {
  void* found = libc_malloc(ctx, n * size);
  return found == nullptr ? nullptr : std::memset(found, 0, n * size);
}
void* libc_realloc(void*, void* ptr, std::size_t size) { return std::realloc(ptr, size); }
void libc_free(void*, void* ptr, std::size_t) {
  if (malloc_usable_size(ptr) >= kLeast) ++freed_libc;
  std::free(ptr);
}

void* ask(std::size_t size) {
  const MallocTable* to = size < kLeast ? nullptr : table.load();
  return to == nullptr ? std::malloc(size) : to->functions.malloc(to->functions.ctx, size);
}

void drop(void* ptr) {
  const bool begins_page = ptr != nullptr && reinterpret_cast<std::uintptr_t>(ptr) % kPage == 0;
  const MallocTable* to = begins_page ? table.load() : nullptr;
  if (to == nullptr) return std::free(ptr);
  to->functions.free(to->functions.ctx, ptr, SIZE_MAX);
}

}  // namespace

void* operator new(std::size_t size) {
  if (void* found = ask(size)) return found;
  throw std::bad_alloc();
}
void operator delete(void* ptr) noexcept { drop(ptr); }
void operator delete(void* ptr, std::size_t) noexcept { drop(ptr); }

namespace {

// ------------------------------------------------------------------------------------------------------- blocks

struct Held {
  unsigned char* ptr = nullptr;
  std::size_t size = 0;

  unsigned char pattern() const { return static_cast<unsigned char>(size % 251); }
  void fill() const { ptr[0] = ptr[size / 2] = ptr[size - 1] = pattern(); }
  void check() const {
    const bool kept = ptr[0] == pattern() && ptr[size / 2] == pattern() && ptr[size - 1] == pattern();
    if (!kept) fail("a block's bytes were overwritten while it was alive");
  }
};

Held make(std::mt19937& random) {
  const std::size_t size = kLeast + random() % (8 * kPage);
  const auto& functions = table.load()->functions;
  const bool zeroed = random() % 8 == 0;
  Held block{static_cast<unsigned char*>(zeroed ? functions.calloc(functions.ctx, 1, size) : ask(size)), size};
  if (block.ptr == nullptr) fail("out of memory");
  if (reinterpret_cast<std::uintptr_t>(block.ptr) % kPage != 0) fail("a large block begins no page");
  const std::size_t usable = table.load()->size_of(functions.ctx, block.ptr);
  if (usable != 0 && usable < size) fail("less may be used than was asked for");  // 0: the C library's, in a fork
  if (zeroed && (block.ptr[0] != 0 || block.ptr[size / 2] != 0 || block.ptr[size - 1] != 0)) fail("calloc: no zeros");
  block.fill();
  return block;
}

void resize(Held& block, std::size_t size) {
  const auto& functions = table.load()->functions;
  const unsigned char pattern = block.pattern();
  block.check();
  block = {static_cast<unsigned char*>(functions.realloc(functions.ctx, block.ptr, size)), size};
  if (block.ptr == nullptr || block.ptr[0] != pattern) fail("resizing loses bytes");
  block.fill();
}

void end(const Held& block) {
  block.check();
  drop(block.ptr);
}

class Exchange {
 public:
  Exchange() { blocks_.reserve(kMost); }  // nothing large is asked for under the mutex
  void swap(Held& block) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.size() < kMost) {
      blocks_.push_back(block);
      block = {};
    } else {
      std::swap(block, blocks_[next_++ % kMost]);
    }
  }
  void clear() {
    for (const Held& block : blocks_) end(block);
    blocks_.clear();
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::mutex mutex_;
  std::vector<Held> blocks_;
  std::size_t next_ = 0;
};

void change(unsigned seed, int rounds, std::size_t most, Exchange& exchange) {
  std::mt19937 random(seed);
  std::vector<Held> live;
  for (int i = 0; i < rounds; ++i) {
    if (live.empty() || (live.size() < most && random() % 16 != 0)) live.push_back(make(random));
    if (live.size() < most && random() % 2 == 0) continue;
    Held& block = live[random() % live.size()];
    const unsigned what = random() % 8;
    if (what == 0) {
      resize(block, kLeast + random() % (8 * kPage));
      continue;
    }
    if (what == 1) exchange.swap(block);
    if (block.ptr != nullptr) end(block);
    block = live.back();
    live.pop_back();
  }
  for (const Held& block : live) end(block);
}

// -------------------------------------------------------------------------------------------------------- forks

Held before_fork;

// What another library may do in its handler, while this thread holds the pools' locks.
void other_handler() {
  if (before_fork.ptr == nullptr) return;
  std::mt19937 random(1);
  Held other = make(random);
  resize(other, 4 * kLeast);
  end(other);
  resize(before_fork, before_fork.size + kPage);
}

void fork_now_and_then(int times, Exchange& exchange) {
  std::mt19937 random(77);
  for (int i = 0; i < times; ++i) {
    before_fork = make(random);
    const pid_t child = fork();
    if (child == 0) {
      end(before_fork);
      change(5, 50, 20, exchange);
      std::_Exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("a forked process did not get through");
    end(before_fork);
    before_fork = {};
    usleep(2000);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 1;
  pthread_atfork(other_handler, other_handler, other_handler);  // first, and so with all locks held
  static Dispatcher dispatcher({nullptr, libc_malloc, libc_calloc, libc_realloc, libc_free});
  HostMemory memory(dispatcher.original(), kLeast, Scope::process, UnderMalloc::kPage);
  LockedLanes lanes(memory.lock(), memory.service());
  lanes.find_steps();
  dispatcher.serve(&memory);
  UnderMalloc under(dispatcher);
  const MallocTable functions = under.table();
  table = &functions;

  Exchange exchange;
  std::thread outcome_thread([&] {
    while (lanes.signal().wait()) lanes.take_outcomes();
  });
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) threads.emplace_back([&, t] { change(t, 1500 * scale, 450, exchange); });
  threads.emplace_back([&] { fork_now_and_then(20 * scale, exchange); });
  for (std::thread& thread : threads) thread.join();
  lanes.signal().close();
  outcome_thread.join();
  exchange.clear();
  std::mt19937 random(3);
  end(make(random));  // and with it what was put off

  if (asked_inside == 0) fail("no container of the core was a large block");
  if (freed_libc == 0) fail("nothing that was put off has been freed");
  const Counters counters = lanes.counters();
  if (counters.live_bytes != 0 || counters.upstream_bytes != 0) fail("bytes are missing");
  std::printf("under_malloc_stress: %llu large blocks asked for under a lock, %llu given back, no byte lost\n",
              static_cast<unsigned long long>(asked_inside), static_cast<unsigned long long>(freed_libc));
  table = nullptr;  // what containers still have is the C library's
  return 0;
}
