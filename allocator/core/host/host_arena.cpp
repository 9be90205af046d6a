#include "host_arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace stowplan::allocator {

namespace {

constexpr std::size_t kHugeBytes = HostArena::kHugePage * HostArena::kPage;
constexpr std::size_t kSpared = 16;  // at most one part in so many of an arena is memory that huge pages add to it

// Several times the memory that there is, so that many arenas find addresses, and none too few of them.
std::size_t most_addresses() {
  constexpr std::size_t kLeast = std::size_t{1} << 36, kMost = std::size_t{1} << 40;
  const auto memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::clamp(4 * memory, kLeast, kMost) & ~(kHugeBytes - 1);
}

std::size_t round_up(std::size_t x, std::size_t unit) { return (x + unit - 1) / unit * unit; }

// How much memory to make accessible: whole huge pages, where they add little; the system gives no others.
std::size_t with_huge_pages(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, kHugeBytes);
  return whole - bytes <= bytes / kSpared ? whole : bytes;
}

}  // namespace

HostArena::~HostArena() {
  if (base() != 0) munmap(address_of(0), addresses_);
}

bool HostArena::grow(Bytes size) {
  if (size <= size_) return true;
  const std::size_t wanted = with_huge_pages(round_up(static_cast<std::size_t>(size), kPage));
  if (base() == 0 && !reserve_addresses(wanted)) return false;
  if (wanted > addresses_ || mprotect(address_of(0), wanted, PROT_READ | PROT_WRITE) != 0) return false;
  is_resident_.resize(std::max(is_resident_.size(), wanted / kPage));
#ifdef MADV_HUGEPAGE
  madvise(address_of(0), wanted, MADV_HUGEPAGE);
#endif
  size_ = size;
  return true;
}

// The widest range that the system allows (an address space limit may be set), aligned to huge pages.
bool HostArena::reserve_addresses(std::size_t least) {
  for (std::size_t bytes = most_addresses(); bytes >= least + kHugeBytes; bytes /= 2) {
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(range);
    const std::size_t lead = round_up(begin, kHugeBytes) - begin;
    if (lead > 0) munmap(range, lead);
    addresses_ = bytes - lead;
    base_.store(begin + lead, std::memory_order_release);
    return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------------------------- residency

std::size_t HostArena::resident(Pages pages) const {
  return static_cast<std::size_t>(std::count(is_resident_.data() + pages.begin, is_resident_.data() + pages.end, 1));
}

std::size_t HostArena::touch(Pages pages) {
  for (const Page page : {pages.begin, pages.end - 1}) {
    const Pages huge{page / kHugePage * kHugePage, page / kHugePage * kHugePage + kHugePage};
    if (huge.end > usable() || resident(huge) > 0) continue;
    pages = {std::min(pages.begin, huge.begin), std::max(pages.end, huge.end)};
  }
  return set_resident(pages, true);
}

// How many of them changed.
std::size_t HostArena::set_resident(Pages pages, bool resident) {
  const std::size_t before = this->resident(pages);
  std::fill(is_resident_.data() + pages.begin, is_resident_.data() + pages.end, resident);
  const std::size_t changed = resident ? pages.size() - before : before;
  resident_ = resident ? resident_ + changed : resident_ - changed;
  return changed;
}

std::size_t HostArena::give_back(Pages pages) {
  if (resident(pages) == 0) return 0;
  // A huge page that goes in part is there before: else it would come as a whole when what stays is first used.
  for (const Page page : {pages.begin, pages.end - 1}) *static_cast<volatile char*>(address_of(page)) = 0;
  // It fails for locked memory, which keeps its bytes.
  if (madvise(address_of(pages.begin), pages.size() * kPage, MADV_DONTNEED) != 0) return 0;
  return set_resident(pages, false);
}

}  // namespace stowplan::allocator
