// Host memory at addresses that stay: a lane's arena, or what the heap serves from.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "step_recorder.hpp"

namespace stowplan::allocator {

// An arena that grows in place: a wide range of addresses is set aside (which takes no memory), and as much of it is
// made usable as is asked for. So a larger plan never needs a second arena beside the first.
//
// A byte for each page says whether it is resident, as far as its owner tells: it was touched, and not given back
// since.
class HostArena {
 public:
  using Page = std::uint32_t;  // a number of pages, or of a page
  static constexpr std::size_t kPage = 4096;
  static constexpr Page kHugePage = 512;
  struct Pages {
    Page begin = 0, end = 0;
    Page size() const { return end - begin; }
  };

  HostArena() = default;
  ~HostArena();

  // False, and nothing changed, where the system has no memory or no addresses for it.
  bool grow(Bytes size);
  // 0 before it has grown for the first time. Once a thread sees another one, it may ask for addresses(), too.
  std::uintptr_t base() const { return base_.load(std::memory_order_acquire); }
  Bytes size() const { return size_; }
  std::size_t addresses() const { return addresses_; }
  bool has_address(std::uintptr_t address) const { return base() != 0 && address - base() < addresses_; }
  void* address_of(Page page) const { return reinterpret_cast<void*>(base() + page * kPage); }

  Page page_of(std::uintptr_t address) const { return static_cast<Page>((address - base()) / kPage); }
  // The pages that have some of these bytes, and those that have no others.
  Pages around(std::uintptr_t begin, std::uintptr_t end) const { return {page_of(begin), page_of(end + kPage - 1)}; }
  Pages within(std::uintptr_t begin, std::uintptr_t end) const {
    const Page first = page_of(begin + kPage - 1);
    return {first, std::max(first, page_of(end))};
  }
  // These pages are about to be used; returns how many come into memory: where nothing of a huge page was, all of it.
  std::size_t touch(Pages pages);
  // Gives pages back to the system; they find zeros later. Returns how many were resident.
  std::size_t give_back(Pages pages);
  std::size_t resident(Pages pages) const;
  Page usable() const { return static_cast<Page>(is_resident_.size()); }
  std::size_t resident() const { return resident_; }
  // The bytes that its pages take.
  Bytes held() const { return std::min(static_cast<Bytes>(resident_ * kPage), size_); }

 private:
  bool reserve_addresses(std::size_t bytes);
  std::size_t set_resident(Pages pages, bool resident);

  std::atomic<std::uintptr_t> base_{0};
  std::size_t addresses_ = 0;
  Bytes size_ = 0;
  std::vector<char> is_resident_;  // a byte for each page that can be used
  std::size_t resident_ = 0;       // pages
};

}  // namespace stowplan::allocator
