#include "host_arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace stowplan::allocator {

namespace {

constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::size_t kSpared = 16;  // at most one part in so many of an arena is memory that huge pages add to it

// Several times the memory that there is, so that many arenas find addresses, and none too few of them.
std::size_t most_addresses() {
  constexpr std::size_t kLeast = std::size_t{1} << 36, kMost = std::size_t{1} << 40;
  const auto memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::clamp(4 * memory, kLeast, kMost) & ~(kHugePage - 1);
}

std::size_t round_up(std::size_t x, std::size_t unit) { return (x + unit - 1) / unit * unit; }

// How much memory to make accessible: whole huge pages, where they add little; the system gives no others.
std::size_t with_huge_pages(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, kHugePage);
  return whole - bytes <= bytes / kSpared ? whole : bytes;
}

}  // namespace

HostArena::~HostArena() {
  if (base() != 0) munmap(memory(), addresses_);
}

bool HostArena::grow(Bytes size) {
  if (size <= size_) return true;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t wanted = with_huge_pages(round_up(static_cast<std::size_t>(size), page));
  if (base() == 0 && !reserve_addresses(wanted)) return false;
  if (wanted > addresses_ || mprotect(memory(), wanted, PROT_READ | PROT_WRITE) != 0) return false;
#ifdef MADV_HUGEPAGE
  madvise(memory(), wanted, MADV_HUGEPAGE);
#endif
  size_ = size;
  return true;
}

void HostArena::drop_pages() { madvise(memory(), static_cast<std::size_t>(size_), MADV_DONTNEED); }

// The widest range that the system allows (an address space limit may be set), aligned to huge pages.
bool HostArena::reserve_addresses(std::size_t least) {
  for (std::size_t bytes = most_addresses(); bytes >= least + kHugePage; bytes /= 2) {
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(range);
    const std::size_t lead = round_up(begin, kHugePage) - begin;
    if (lead > 0) munmap(range, lead);
    addresses_ = bytes - lead;
    base_.store(begin + lead, std::memory_order_release);
    return true;
  }
  return false;
}

}  // namespace stowplan::allocator
