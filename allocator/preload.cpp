// malloc with a pool in its place for large blocks: a library of its own, which LD_PRELOAD puts before the C library.
//
//     request of kLeast bytes or more, aligned to a page at most ──> the pool's table, once there is one
//     any other                                                  ──> the C library
//     free, realloc: what begins a page ──> the table, which knows whose it is; what does not ──> the C library
//
// All that comes from the table begins a page, and hardly anything else does: so most frees cost one test of the
// address more than the C library's. A block stays with whom it came from: realloc by the C library can move pages.
//
// Without a table this is the C library: there is no early start-up to get through, and a program that never installs
// a pool notices nothing. A table stays for ever, as its blocks may. glibc alone: its functions have second names,
// which are called here. No Python in it, nor anything of C++ that needs a library.
#ifdef __linux__
#include <features.h>
#endif
#ifdef __GLIBC__

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier): the C library's own names
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}
// NOLINTEND(bugprone-reserved-identifier)

#define STOWPLAN_API extern "C" __attribute__((visibility("default")))

namespace {

// The Upstream of profiler/core/host_memory.hpp.
struct Functions {
  void* ctx;
  void* (*malloc)(void* ctx, std::size_t size);
  void* (*calloc)(void* ctx, std::size_t count, std::size_t item_size);
  void* (*realloc)(void* ctx, void* ptr, std::size_t new_size);
  void (*free)(void* ctx, void* ptr, std::size_t size);
};

// The MallocTable of core/under_malloc.hpp.
struct Table {
  Functions functions;
  std::size_t (*size_of)(void* ctx, void* ptr);
  void (*hold)();
  void (*let_go)();
};

constexpr std::size_t kLeast = std::size_t{1} << 16;  // HostHeap::kLeast
constexpr std::size_t kPage = 4096;                   // UnderMalloc::kPage
constexpr std::size_t kUnknown = SIZE_MAX;            // bytes of a block that is freed

std::atomic<const Table*> table{nullptr};
thread_local const Table* held = nullptr;  // by this thread's fork
std::size_t (*libc_usable_size)(void*) = nullptr;

// Who is asked for a block; null: the C library, also for what is more than there can be.
const Table* table_for(std::size_t size) {
  return size < kLeast || size > PTRDIFF_MAX ? nullptr : table.load(std::memory_order_acquire);
}

// Who knows whose block it is; null: it is the C library's.
const Table* table_of(const void* ptr) {
  const bool begins_page = reinterpret_cast<std::uintptr_t>(ptr) % kPage == 0;
  return begins_page && ptr != nullptr ? table.load(std::memory_order_acquire) : nullptr;
}

void* or_no_memory(void* ptr) {
  if (ptr == nullptr) errno = ENOMEM;
  return ptr;
}

bool is_power_of_two(std::size_t x) { return x != 0 && (x & (x - 1)) == 0; }

void* aligned(std::size_t alignment, std::size_t size) {
  const Table* to = alignment <= kPage && is_power_of_two(alignment) ? table_for(size) : nullptr;
  if (to == nullptr) return __libc_memalign(alignment, size);
  return or_no_memory(to->functions.malloc(to->functions.ctx, size));
}

__attribute__((noinline)) void free_by(const Table& table, void* ptr) {
  const int error = errno;
  table.functions.free(table.functions.ctx, ptr, kUnknown);
  errno = error;
}

// The C library as what stood there before.
void* libc_malloc(void*, std::size_t size) {
  return size < kLeast ? __libc_malloc(size) : __libc_memalign(kPage, size);
}
void* libc_calloc(void* ctx, std::size_t count, std::size_t item_size) {
  std::size_t size = 0;
  if (__builtin_mul_overflow(count, item_size, &size)) return nullptr;
  if (size < kLeast) return __libc_calloc(count, item_size);
  void* ptr = libc_malloc(ctx, size);
  return ptr == nullptr ? nullptr : std::memset(ptr, 0, size);
}
void* libc_realloc(void*, void* ptr, std::size_t new_size) { return __libc_realloc(ptr, new_size); }
void libc_free(void*, void* ptr, std::size_t) { __libc_free(ptr); }
const Functions libc{nullptr, libc_malloc, libc_calloc, libc_realloc, libc_free};

// Handlers before a fork are called last first: what other libraries wait for in theirs, they wait for before this one.
void hold() {
  held = table.load(std::memory_order_acquire);
  if (held != nullptr) held->hold();
}
void let_go() {
  if (held != nullptr) held->let_go();
}

__attribute__((constructor)) void begin() { pthread_atfork(hold, let_go, let_go); }

}  // namespace

// ---------------------------------------------------------------------------------------------------- for the pool

// Address of the functions that stood there before.
STOWPLAN_API const void* stow_malloc_original() { return &libc; }

// Has a table, which stays for ever, answer from now on.
STOWPLAN_API void stow_malloc_install(const void* given) {
  table.store(static_cast<const Table*>(given), std::memory_order_release);
}

// ---------------------------------------------------------------------------------------------------------- malloc

STOWPLAN_API void* malloc(std::size_t size) {
  const Table* to = table_for(size);
  return to == nullptr ? __libc_malloc(size) : or_no_memory(to->functions.malloc(to->functions.ctx, size));
}

STOWPLAN_API void* calloc(std::size_t count, std::size_t item_size) {
  std::size_t size = 0;
  if (__builtin_mul_overflow(count, item_size, &size)) return or_no_memory(nullptr);
  const Table* to = table_for(size);
  if (to == nullptr) return __libc_calloc(count, item_size);
  return or_no_memory(to->functions.calloc(to->functions.ctx, count, item_size));
}

STOWPLAN_API void free(void* ptr) {
  const Table* to = table_of(ptr);
  if (to == nullptr) return __libc_free(ptr);
  free_by(*to, ptr);
}

STOWPLAN_API void* realloc(void* ptr, std::size_t new_size) {
  if (ptr == nullptr) return malloc(new_size);
  const Table* to = table_of(ptr);
  if (to == nullptr) return __libc_realloc(ptr, new_size);
  if (new_size == 0) {  // as glibc
    free_by(*to, ptr);
    return nullptr;
  }
  if (new_size > PTRDIFF_MAX) return or_no_memory(nullptr);
  return or_no_memory(to->functions.realloc(to->functions.ctx, ptr, new_size));
}

STOWPLAN_API void* reallocarray(void* ptr, std::size_t count, std::size_t item_size) {
  std::size_t size = 0;
  return __builtin_mul_overflow(count, item_size, &size) ? or_no_memory(nullptr) : realloc(ptr, size);
}

STOWPLAN_API int posix_memalign(void** to, std::size_t alignment, std::size_t size) {
  if (alignment % sizeof(void*) != 0 || !is_power_of_two(alignment)) return EINVAL;
  void* ptr = aligned(alignment, size);
  if (ptr == nullptr) return ENOMEM;
  *to = ptr;
  return 0;
}

STOWPLAN_API void* aligned_alloc(std::size_t alignment, std::size_t size) { return aligned(alignment, size); }

STOWPLAN_API void* memalign(std::size_t alignment, std::size_t size) { return aligned(alignment, size); }

// At least what was asked for, and no more than may be used.
STOWPLAN_API std::size_t malloc_usable_size(void* ptr) {
  const Table* to = table_of(ptr);
  const std::size_t ours = to == nullptr ? 0 : to->size_of(to->functions.ctx, ptr);
  if (ours > 0) return ours;
  if (libc_usable_size == nullptr) {
    libc_usable_size = reinterpret_cast<std::size_t (*)(void*)>(dlsym(RTLD_NEXT, "malloc_usable_size"));
  }
  return libc_usable_size(ptr);
}

#endif
