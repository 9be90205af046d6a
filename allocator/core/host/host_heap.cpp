#include "host_heap.hpp"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <utility>

#include "invariants.hpp"

namespace stowplan::allocator {

namespace {

// More is made accessible than is asked for, so that the system is asked seldom.
constexpr std::size_t kStep = 16;        // a part of the extent
constexpr std::size_t kLeastStep = 256;  // pages

}  // namespace

void trim_c_library() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

HostHeap::HostHeap(const Upstream& below, Clock clock) : below_(below), clock_(clock) {}

std::int64_t HostHeap::monotonic() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// ------------------------------------------------------------------------------------------------- the interface

void* HostHeap::malloc(std::size_t size) {
  if (size < kLeast) return below_.malloc(below_.ctx, size);
  if (void* found = take(size, false)) return found;
  return below_.malloc(below_.ctx, size);
}

void* HostHeap::calloc(std::size_t count, std::size_t item_size) {
  std::size_t size = 0;
  if (__builtin_mul_overflow(count, item_size, &size)) return nullptr;
  if (size < kLeast) return below_.calloc(below_.ctx, count, item_size);
  if (void* found = take(size, true)) return found;
  return below_.calloc(below_.ctx, count, item_size);
}

void* HostHeap::realloc(void* old, std::size_t new_size) {
  if (!owns(old)) return below_.realloc(below_.ctx, old, new_size);
  const std::size_t held = locked(lock_, [&] { return taken_[page_of(old)] * kPage; });
  if (new_size <= held && new_size >= held / 2) return old;
  void* fresh = malloc(new_size);
  if (fresh == nullptr) return nullptr;
  std::memcpy(fresh, old, std::min(held, new_size));
  free(old, held);
  return fresh;
}

void HostHeap::free(void* ptr, std::size_t size) {
  if (ptr == nullptr || !owns(ptr)) return below_.free(below_.ctx, ptr, size);
  std::lock_guard<SpinLock> lock(lock_);
  const Page begin = page_of(ptr), pages = std::exchange(taken_[begin], 0);
  free_.put({begin, begin + pages, Holes::kOver, 0});
  in_use_ -= pages;
  note_use();
  if (period_end_ <= released_until_) memory_.give_back({begin, begin + pages});
  if (kDebug) assert_invariants();
}

void HostHeap::tick() {
  std::lock_guard<SpinLock> lock(lock_);
  note_use();
}

void HostHeap::give_back(std::size_t bytes) {
  std::lock_guard<SpinLock> lock(lock_);
  const std::size_t pages = (bytes + kPage - 1) / kPage;
  shrink(memory_.resident() - std::min(pages, memory_.resident() - in_use_), true);
}

void HostHeap::release() {
  std::lock_guard<SpinLock> lock(lock_);
  shrink(in_use_, true);
  released_until_ = clock_() + 2 * kPeriod;
}

// -------------------------------------------------------------------------------------------------------- ranges

// A block of at least `size` bytes, or null where the system has no addresses or no memory for it.
void* HostHeap::take(std::size_t size, bool zeroed) try {
  if (size > kPage * (INT32_MAX / 2)) return nullptr;
  const auto pages = static_cast<Page>((size + kPage - 1) / kPage);
  void* found = nullptr;
  Pages dirty;  // of its pages, those that were resident, and what lies between them
  bool trims = false;
  {
    std::lock_guard<SpinLock> lock(lock_);
    auto best = free_.smallest(Holes::kOver, pages);
    if (best == free_.end()) {
      if (!extend(pages)) return nullptr;
      best = free_.smallest(Holes::kOver, pages);
    }
    free_.promise(1);  // of free(): nothing below throws
    const auto begin = static_cast<Page>(best->first);
    free_.take(best, pages);
    taken_[begin] = pages;
    requests_.fetch_add(1, std::memory_order_relaxed);
    in_use_ += pages;
    if (zeroed && memory_.resident({begin, begin + pages}) > 0) dirty = resident_span({begin, begin + pages});
    const std::size_t fresh = memory_.touch({begin, begin + pages});
    found = memory_.address_of(begin);
    note_use();
    if (fresh > 0) bound();
    if (in_use_ > trim_at_) {
      trims = true;
      trim_at_ = in_use_ + std::max(kSlack / kPage, in_use_ / 8);
    }
    if (kDebug) assert_invariants();
  }
  if (trims) trim_c_library();
  if (const std::size_t bytes = dirty.size() * kPage; bytes > 0) {
    void* first = memory_.address_of(dirty.begin);
    if (bytes < kLazy || madvise(first, bytes, MADV_DONTNEED) != 0) std::memset(first, 0, bytes);
  }
  return found;
} catch (const std::bad_alloc&) {
  return nullptr;
}

// Makes a free range of that many pages at the top.
bool HostHeap::extend(Page pages) {
  Page begin = top_;
  if (const auto last = free_.at_or_after(std::int64_t{top_} - 1); last != free_.end()) {
    begin = static_cast<Page>(last->first);
  }
  const std::size_t end = std::size_t{begin} + pages;
  if (end > INT32_MAX) return false;
  const std::size_t spare = std::max(kLeastStep, end / kStep);
  if (taken_.size() < end) taken_.resize(end + spare);
  if (static_cast<std::size_t>(memory_.size()) < end * kPage) {
    const bool grown =
        memory_.grow(static_cast<Bytes>((end + spare) * kPage)) || memory_.grow(static_cast<Bytes>(end * kPage));
    if (!grown) return false;
  }
  free_.promise(1);
  free_.put({top_, static_cast<Bytes>(end), Holes::kOver, 0});
  top_ = static_cast<Page>(end);
  return true;
}

// ----------------------------------------------------------------------------------------------------- what stays

HostHeap::Pages HostHeap::resident_span(Pages span) const {
  const auto is_resident = [&](Page page) { return memory_.resident({page, page + 1}) > 0; };
  while (span.begin < span.end && !is_resident(span.begin)) ++span.begin;
  while (span.begin < span.end && !is_resident(span.end - 1)) --span.end;
  return span;
}

HostHeap::Counts HostHeap::counts() const {
  std::lock_guard<SpinLock> lock(lock_);
  return {in_use_ * kPage, peak_in_use_ * kPage, memory_.resident() * kPage, peak_resident_ * kPage};
}

void HostHeap::note_use() {
  most_ = std::max(most_, in_use_);
  peak_in_use_ = std::max(peak_in_use_, in_use_);
  const std::int64_t now = clock_();
  if (now >= period_end_) end_period(now);
}

void HostHeap::end_period(std::int64_t now) {
  const bool is_first = period_end_ == 0;
  period_end_ = now + kPeriod;
  if (is_first) return;
  shrink(std::max(most_, most_before_), true);
  most_before_ = std::exchange(most_, in_use_);
  given_back_ = 0;
}

// Gives back what lies between the blocks, if it is much; less of it where the program soon wants it again.
void HostHeap::bound() {
  if (memory_.resident() > peak_in_use_ + slack_) {
    given_back_ += memory_.resident();
    shrink(peak_in_use_, false);
    given_back_ -= memory_.resident();
    if (4 * given_back_ > peak_in_use_) {
      slack_ = std::max(slack_, std::min(2 * slack_, peak_in_use_ / kMostSlack));
      given_back_ = 0;
    }
  }
  peak_resident_ = std::max(peak_resident_, memory_.resident());
}

// Gives free pages back until no more than `most` are resident, from the top and the largest ranges' ends. Whole huge
// pages go first, which come back with one fault each; where it is not to be exact to the page, nothing else goes.
void HostHeap::shrink(std::size_t most, bool to_the_page) {
  if (memory_.resident() > most) memory_.give_back({top_, memory_.usable()});
  free_.each_down(Holes::kOver, [&](Bytes begin, Bytes range_end) {
    const auto first = static_cast<Page>(begin);
    Page end = static_cast<Page>(range_end) / kHugePage * kHugePage;
    for (; end >= first + kHugePage && memory_.resident() > most; end -= kHugePage) {
      memory_.give_back({end - kHugePage, end});
    }
    return memory_.resident() > most;
  });
  if (!to_the_page) return;
  free_.each_down(Holes::kOver, [&](Bytes begin, Bytes end) {
    if (memory_.resident() > most) memory_.give_back({static_cast<Page>(begin), static_cast<Page>(end)});
    return memory_.resident() > most;
  });
}

// ----------------------------------------------------------------------------------------------------- invariants

void HostHeap::assert_invariants() const {
  std::size_t taken = 0;
  for (Page page = 0; page < top_;) {
    const Page pages = taken_[page];
    if (pages == 0) {
      const auto hole = free_.at_or_after(page);
      require(hole != free_.end() && hole->first == page, "what is not taken is free, and free neighbours are joined");
      page = static_cast<Page>(hole->second.end);
    } else {
      require(free_.within(page, page + pages) == 0, "what is taken is not free");
      require(memory_.resident({page, page + pages}) == pages, "what is taken counts as resident");
      taken += pages;
      page += pages;
    }
    require(page <= top_, "ranges end at the top");
  }
  require(taken == in_use_, "pages in use are counted");
  require(memory_.resident({0, memory_.usable()}) == memory_.resident(), "resident pages are counted");
}

}  // namespace stowplan::allocator
