// What a C program may ask of malloc, for a process with allocator/preload.cpp and a pool: compiled by the tests, and
// called in such a process. Each check returns the line that does not hold, 0 where all do.
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define CHECK(holds) \
  if (!(holds)) return __LINE__

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;

char* filled(void* ptr, std::size_t size, char byte) { return static_cast<char*>(std::memset(ptr, byte, size)); }

bool all(const char* ptr, std::size_t size, char byte) {
  for (std::size_t i = 0; i < size; ++i) {
    if (ptr[i] != byte) return false;
  }
  return true;
}

// Freed by the destructors of the process, when Python is gone.
struct AtExit {
  void* ptr = nullptr;
  ~AtExit() {
    std::free(ptr);
    void* last = std::malloc(kLarge);
    std::free(filled(last, kLarge, 3));
    if (ptr != nullptr) std::fputs("freed at exit\n", stderr);
  }
} at_exit;

struct AtThreadEnd {
  void* ptr = std::malloc(kLarge);
  ~AtThreadEnd() { std::free(ptr); }
};
thread_local AtThreadEnd at_thread_end;

}  // namespace

extern "C" int plain() {
  for (int i = 0; i < 3; ++i) {
    char* recycled = filled(std::malloc(kLarge), kLarge, 7);
    std::free(recycled);
    char* zeros = static_cast<char*>(std::calloc(kLarge / 4, 4));
    CHECK(all(zeros, kLarge, 0));
    std::free(zeros);
  }
  void* one = std::malloc(0);
  void* other = std::malloc(0);
  CHECK(one != nullptr && other != nullptr && one != other);
  std::free(one);
  std::free(other);
  std::free(nullptr);
  for (const std::size_t size : {std::size_t{1}, std::size_t{65535}, std::size_t{65536}, kLarge + 1}) {
    void* block = std::malloc(size);
    CHECK(malloc_usable_size(block) >= size);
    filled(block, malloc_usable_size(block), 1);  // all of it may be used
    std::free(block);
  }
  CHECK(malloc_usable_size(nullptr) == 0);
  return 0;
}

extern "C" int too_much() {
  volatile std::size_t most = SIZE_MAX;
  errno = 0;
  CHECK(std::malloc(most - 100) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(std::calloc(most / 2, 3) == nullptr && errno == ENOMEM);
  char* block = filled(std::malloc(kLarge), kLarge, 5);
  errno = 0;
  CHECK(std::realloc(block, most - 100) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(reallocarray(block, most / 2, 3) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(std::realloc(block, std::size_t{1} << 60) == nullptr && errno == ENOMEM);
  CHECK(all(block, kLarge, 5));
  errno = 77;
  std::free(block);
  CHECK(errno == 77);
  void* aligned = nullptr;
  CHECK(posix_memalign(&aligned, 64, most - 100) == ENOMEM && aligned == nullptr);
  CHECK(posix_memalign(&aligned, 24, kLarge) == EINVAL && posix_memalign(&aligned, 0, kLarge) == EINVAL);
  return 0;
}

extern "C" int alignments() {
  for (std::size_t alignment = sizeof(void*); alignment <= (std::size_t{1} << 22); alignment *= 2) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{70000}, kLarge}) {
      void* block = nullptr;
      CHECK(posix_memalign(&block, alignment, size) == 0);
      CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0 && malloc_usable_size(block) >= size);
      std::free(filled(block, size, 1));
      block = aligned_alloc(alignment, size / alignment * alignment + alignment);
      CHECK(block != nullptr && reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
      CHECK((block = std::realloc(block, 2 * size)) != nullptr);
      std::free(block);
      std::free(memalign(alignment, size));
    }
  }
  std::free(valloc(kLarge));
  std::free(pvalloc(100));
  return 0;
}

extern "C" int resizes() {
  std::size_t size = 16;
  char* block = filled(std::realloc(nullptr, size), size, 9);
  for (const std::size_t next : {100000, 3000000, 3100000, 70000, 65536, 65535, 10, 200000, 50}) {
    block = static_cast<char*>(std::realloc(block, next));
    CHECK(block != nullptr && all(block, size < next ? size : next, 9));
    size = next;
    filled(block, size, 9);
  }
  block = static_cast<char*>(reallocarray(block, 1000, 1000));
  CHECK(block != nullptr && all(block, size, 9));
  CHECK(std::realloc(block, 0) == nullptr);
  return 0;
}

extern "C" int threads() {
  void* block = std::malloc(kLarge);
  std::thread([&] { std::free(block); }).join();
  std::atomic<int> broken{0};
  std::vector<std::thread> all_threads;
  for (int t = 0; t < 4; ++t) {
    all_threads.emplace_back([&, t] {
      filled(at_thread_end.ptr, 100, 1);
      for (int i = 0; i < 1500; ++i) {
        const std::size_t size = static_cast<std::size_t>(i % 7 + 1) * 40000;
        char* own = static_cast<char*>(std::malloc(size));
        own[0] = own[size - 1] = static_cast<char>(t);
        if (i % 3 == 0) own = static_cast<char*>(std::realloc(own, 2 * size));
        if (own[0] != t || own[size - 1] != t) ++broken;
        std::free(own);
      }
    });
  }
  for (std::thread& thread : all_threads) thread.join();
  CHECK(broken == 0);
  return 0;
}

// A child finds no lock held, whatever the other threads are at; and what it inherits is its own.
extern "C" int forks() {
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  for (int t = 0; t < 2; ++t) {
    busy.emplace_back([&] {
      while (!over) std::free(std::malloc(100000));
    });
  }
  int failed = 0;
  for (int i = 0; i < 30 && failed == 0; ++i) {
    char* inherited = filled(std::malloc(kLarge), kLarge, 4);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      char* own = filled(std::malloc(kLarge), kLarge, 5);
      const bool kept = all(inherited, kLarge, 4) && all(own, kLarge, 5);
      std::free(inherited);
      std::free(own);
      _exit(kept ? 0 : 1);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) failed = __LINE__;
    std::free(inherited);
  }
  over = true;
  for (std::thread& thread : busy) thread.join();
  return failed;
}

extern "C" int leave_for_exit() {
  at_exit.ptr = std::malloc(kLarge);
  return at_exit.ptr == nullptr ? __LINE__ : 0;
}
