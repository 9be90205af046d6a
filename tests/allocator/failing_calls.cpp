// To be preloaded: a call fails once, when it was made so many times, as it does without memory. Calls of C++'s `new`,
// anyone's; or those by which the core asks the kernel for memory.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

static std::atomic<bool> of_kernel{false};
static std::atomic<long> left{0};
extern "C" void fail_at(long calls, bool kernel) {
  of_kernel = kernel;
  left = calls;
}
extern "C" long calls_left() { return left; }

static bool fails() { return left > 0 && --left == 0; }

void* operator new(std::size_t size) {
  if (!of_kernel && fails()) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

static bool fails_for(void* caller) {
  Dl_info info;
  const bool is_core = of_kernel && dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "/allocator/_core.");
  if (!is_core || !fails()) return false;
  errno = ENOMEM;
  return true;
}

extern "C" void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) noexcept {
  if (fails_for(__builtin_return_address(0))) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, file, offset));
}
extern "C" int mprotect(void* at, std::size_t size, int protection) noexcept {
  if (fails_for(__builtin_return_address(0))) return -1;
  return static_cast<int>(syscall(SYS_mprotect, at, size, protection));
}
static std::atomic<long> parts{0};
extern "C" long parts_given_back() { return parts; }  // bytes: of huge pages that do not go as a whole
extern "C" int madvise(void* at, std::size_t size, int advice) noexcept {
  if (advice == MADV_DONTNEED) {
    constexpr std::size_t kHuge = 2 << 20;
    const auto begin = reinterpret_cast<std::size_t>(at), first = (begin + kHuge - 1) / kHuge * kHuge;
    const std::size_t last = (begin + size) / kHuge * kHuge;
    parts += static_cast<long>(size - (last > first ? last - first : 0));
  }
  if (fails_for(__builtin_return_address(0))) return -1;
  return static_cast<int>(syscall(SYS_madvise, at, size, advice));
}
