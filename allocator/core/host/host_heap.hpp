// Large blocks of host memory that no plan has a place for: what is freed stays mapped, for the next request.
//
//     heap    |####....##......####..|        # taken; free ranges are joined, and the smallest that fits is taken
//              ^ resident or released  ^ top: untouched from here on
//
// The C library maps each large block, or trims its heap when one is freed: then the kernel has to clear each of its
// pages again, one page fault at a time. Here a range stays as it is, in huge pages where the system has them.
//
// What stays is bounded. Time is cut into periods of kPeriod; at the end of one, the heap keeps resident no more than
// the program has had in use in that period and in the one before, and the system gets the rest back. Within a period
// whole huge pages go back as soon as more is resident than the most that was ever in use, and a slack: kSlack, which
// doubles each time that a quarter of that most has gone back within a period, as the program wants it again, up to one
// part in kMostSlack of it. release() gives all back.
//
// Its memory knows which pages are resident (host_arena.hpp), so calloc() clears no page that the kernel will, and
// nothing is given back twice.
//
// Best fit (holes.hpp), in pages: O(log free ranges + pages) per block; what goes back costs O(free ranges + free huge
// pages), when a period ends or memory has come above the bound. Requests below kLeast, and those that the system has
// no addresses for, are passed on. Synchronized.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "holes.hpp"
#include "host_arena.hpp"
#include "host_memory.hpp"
#include "spin_lock.hpp"

namespace stowplan::allocator {

// Has the C library give back what it keeps of blocks freed.
void trim_c_library();

class HostHeap {
 public:
  static constexpr std::size_t kLeast = std::size_t{1} << 15;
  static constexpr std::size_t kPage = HostArena::kPage;
  static constexpr std::size_t kLazy = std::size_t{32} << 20;  // from here on the kernel clears what calloc recycles
  static constexpr std::int64_t kPeriod = 1'000'000'000;       // nanoseconds
  static constexpr std::size_t kSlack = std::size_t{8} << 20, kMostSlack = 2;  // bytes; one part in so many

  using Clock = std::int64_t (*)();

  // `below` takes what is passed on; `clock` tells nanoseconds.
  explicit HostHeap(const Upstream& below, Clock clock = monotonic);

  void* malloc(std::size_t size);
  void* calloc(std::size_t count, std::size_t item_size);
  void* realloc(void* old, std::size_t new_size);
  void free(void* ptr, std::size_t size);

  // Ends the period if it is over; for when no request comes to the heap.
  void tick();

  // Gives back so many bytes, as far as that much is free.
  void give_back(std::size_t bytes);

  // Gives back the memory of all free ranges; and of what is freed until the next period ends, at once.
  void release();

  bool owns(const void* ptr) const { return memory_.has_address(reinterpret_cast<std::uintptr_t>(ptr)); }
  // Guards all of it.
  SpinLock& lock() { return lock_; }
  std::size_t in_use() const { return in_use_ * kPage; }
  std::size_t extent() const { return top_ * kPage; }  // bytes up to the last page ever taken

  struct Counts {
    std::size_t in_use = 0, peak_in_use = 0;      // bytes
    std::size_t resident = 0, peak_resident = 0;  // bytes
    std::size_t kept() const { return resident - in_use; }
  };
  Counts counts() const;
  // Served so far; from any thread, without the lock.
  std::uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  void assert_invariants() const;

  static std::int64_t monotonic();

 private:
  using Page = HostArena::Page;
  using Pages = HostArena::Pages;
  static constexpr Page kHugePage = HostArena::kHugePage;

  void* take(std::size_t size, bool zeroed);
  Page page_of(const void* ptr) const { return memory_.page_of(reinterpret_cast<std::uintptr_t>(ptr)); }
  bool extend(Page pages);
  void note_use();
  void bound();
  void end_period(std::int64_t now);
  void shrink(std::size_t most, bool to_the_page);
  Pages resident_span(Pages span) const;

  const Upstream below_;
  const Clock clock_;
  mutable SpinLock lock_;
  HostArena memory_;
  Page top_ = 0;             // pages from here on are free, and not in `free_`
  std::vector<Page> taken_;  // the pages of the block that begins at a page, or 0
  Holes free_;
  std::atomic<std::uint64_t> requests_{0};
  std::size_t in_use_ = 0;  // pages
  std::size_t peak_in_use_ = 0, peak_resident_ = 0;
  std::size_t slack_ = kSlack / kPage, given_back_ = 0;  // within the period, for the bound
  std::size_t trim_at_ = kSlack / kPage;                 // pages in use at which the C library gives back what it keeps
  std::size_t most_ = 0, most_before_ = 0;  // pages in use at a time, in the period that goes on and the one before
  std::int64_t period_end_ = 0, released_until_ = 0;
};

}  // namespace stowplan::allocator
