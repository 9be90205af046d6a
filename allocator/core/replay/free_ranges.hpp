// The free ranges of an arena, by address and by size: what a best-fit allocator keeps.
//
//     arena          |####....##......####..|      # taken
//     free ranges         4       6       2
//
// A bit for each unit of the arena says whether it is taken: that answers whether a given range is free. Whoever looks
// for a free range needs them in order. Most blocks come and go between two such looks and cancel out, so changes are
// only noted until then. If there are more notes than it costs to read all bits, the order is made from the bits again.
//
// O(bytes / (64 units)) per change and per range asked about; O(log ranges) at the next look for each change that did
// not cancel out; O(arena / (64 units)) to make the order from the bits. Built only for a step that has left its plan:
// a regular one needs no such thing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <memory_resource>
#include <set>
#include <utility>
#include <vector>

#include "range_set.hpp"

namespace stowplan::allocator {

class FreeRanges {
 public:
  // All ranges begin and end at multiples of `unit` from the arena's begin.
  FreeRanges(Range arena, std::uintptr_t unit)
      : begin_(arena.begin), unit_(unit), units_((arena.end - arena.begin) / unit), taken_(units_ / 64 + 1) {
    changes_.reserve(kFew + taken_.size() / 64);
  }

  // Precondition: the range is free.
  void take(Range r) noexcept {
    each_word(*this, r, [](std::uint64_t& word, std::uint64_t mask) { return word |= mask, true; });
    note({r, true});
  }

  // Precondition: the range is taken.
  void give(Range r) noexcept {
    each_word(*this, r, [](std::uint64_t& word, std::uint64_t mask) { return word &= ~mask, true; });
    // The last one that took it: between an earlier one and now there was another that gave it.
    const auto oldest = changes_.size() > kNear ? changes_.rbegin() + kNear : changes_.rend();
    const auto taken = std::find_if(changes_.rbegin(), oldest, [r](const Change& change) {
      return change.taken && change.range.begin == r.begin && change.range.end == r.end;
    });
    if (taken != oldest) {
      changes_.erase(std::prev(taken.base()));
    } else {
      note({r, false});
    }
  }

  // Whether the range is free.
  bool contains(Range r) const {
    if ((r.end - begin_) / unit_ > units_) return false;
    return each_word(*this, r, [](std::uint64_t word, std::uint64_t mask) { return (word & mask) == 0; });
  }

  // Whether no part of the range is.
  bool is_taken(Range r) const {
    return each_word(*this, r, [](std::uint64_t word, std::uint64_t mask) { return (word & mask) == mask; });
  }

  // The free ranges, the lowest first.
  std::vector<Range> all() const {
    std::vector<Range> all;
    each_free_range([&all](Range free) { all.push_back(free); });
    return all;
  }

  // Bytes that are not free.
  std::uintptr_t taken() const {
    std::size_t units = 0;
    for (const std::uint64_t word : taken_) units += static_cast<std::size_t>(__builtin_popcountll(word));
    return units * unit_;
  }

  // Whether the free ranges in order, if no change is noted beside them, are those that the bits tell of. For
  // invariants.
  bool are_consistent() const {
    if (!in_order_ || !changes_.empty()) return true;
    std::size_t count = 0;
    bool agree = true;
    each_free_range([&](Range free) {
      const auto at = by_address_.find(free.begin);
      agree &= at != by_address_.end() && at->second == free.end;
      agree &= by_size_.count({free.end - free.begin, free.begin}) == 1;
      ++count;
    });
    return agree && by_address_.size() == count && by_size_.size() == count;
  }

  // An address for `size` bytes that `suits(range)` accepts, in the smallest free range that holds them: its lowest
  // address, or else its highest. At most `tries` free ranges are looked at; 0 if none will do.
  template <class Suits>
  std::uintptr_t best_fit(std::uintptr_t size, int tries, Suits&& suits) {
    settle();
    for (auto at = by_size_.lower_bound({size, 0}); at != by_size_.end() && tries > 0; ++at, --tries) {
      const std::uintptr_t lowest = at->second;
      const std::uintptr_t highest = at->second + at->first - size;
      if (suits(Range{lowest, lowest + size})) return lowest;
      if (suits(Range{highest, highest + size})) return highest;
    }
    return 0;
  }

 private:
  using ByAddress = std::pmr::map<std::uintptr_t, std::uintptr_t>;  // begin -> end
  static constexpr std::ptrdiff_t kNear = 16;  // the last changes, among which one that cancels out is looked for
  static constexpr std::size_t kFew = 256;     // changes that are always noted, and one more for 64 words of bits
  struct Change {
    Range range;
    bool taken;
  };

  // Hands over the bits of a range, word by word, as long as the answer is true; returns the last one.
  template <class Self, class Visit>
  static bool each_word(Self& self, Range r, Visit&& visit) {
    const std::size_t end = (r.end - self.begin_) / self.unit_;
    for (std::size_t at = (r.begin - self.begin_) / self.unit_; at < end;) {
      const std::size_t next = std::min(end, at / 64 * 64 + 64);
      const std::uint64_t mask = (~std::uint64_t{0} >> (64 - (next - at))) << at % 64;
      if (!visit(self.taken_[at / 64], mask)) return false;
      at = next;
    }
    return true;
  }

  void note(Change change) noexcept {
    if (changes_.size() == changes_.capacity()) {
      in_order_ = false;
      changes_.clear();
    }
    if (in_order_) changes_.push_back(change);
  }

  void settle() {
    const bool was_in_order = std::exchange(in_order_, false);  // as it is left where this throws
    if (was_in_order) {
      for (const Change& change : changes_) change.taken ? remove(change.range) : merge(change.range);
    } else {
      find_all();
    }
    changes_.clear();
    in_order_ = true;
  }

  void find_all() {
    by_address_.clear();
    by_size_.clear();
    each_free_range([this](Range free) { add(free); });
  }

  // Hands over the free ranges that the bits tell of, the lowest first.
  template <class Visit>
  void each_free_range(Visit&& visit) const {
    for (std::size_t begin = next(0, false); begin < units_;) {
      const std::size_t end = next(begin, true);
      visit(Range{begin_ + begin * unit_, begin_ + end * unit_});
      begin = next(end, false);
    }
  }

  // The first unit from `at` on that is taken, or that is not; or else the end.
  std::size_t next(std::size_t at, bool taken) const {
    for (; at < units_; at = at / 64 * 64 + 64) {
      const std::uint64_t word = (taken ? taken_[at / 64] : ~taken_[at / 64]) & ~std::uint64_t{0} << at % 64;
      if (word != 0) return std::min(units_, at / 64 * 64 + static_cast<std::size_t>(__builtin_ctzll(word)));
    }
    return units_;
  }

  void remove(Range r) {
    const auto at = std::prev(by_address_.upper_bound(r.begin));
    const Range free{at->first, at->second};
    remove(at);
    add({free.begin, r.begin});
    add({r.end, free.end});
  }
  void merge(Range r) {
    const auto after = by_address_.lower_bound(r.begin);
    if (after != by_address_.begin()) {
      const auto before = std::prev(after);
      if (before->second == r.begin) {
        r.begin = before->first;
        remove(before);
      }
    }
    const auto next = by_address_.lower_bound(r.end);
    if (next != by_address_.end() && next->first == r.end) {
      r.end = next->second;
      remove(next);
    }
    add(r);
  }

  void add(Range r) {
    if (r.begin >= r.end) return;
    by_address_.emplace(r.begin, r.end);
    by_size_.emplace(r.end - r.begin, r.begin);
  }
  void remove(ByAddress::const_iterator at) {
    by_size_.erase({at->second - at->first, at->first});
    by_address_.erase(at);
  }

  const std::uintptr_t begin_, unit_;
  const std::size_t units_;
  std::vector<std::uint64_t> taken_;  // a bit for each unit
  // Nodes of the trees are used again.
  std::unique_ptr<std::pmr::memory_resource> nodes_ = std::make_unique<std::pmr::unsynchronized_pool_resource>();
  ByAddress by_address_{nodes_.get()};
  std::pmr::set<std::pair<std::uintptr_t, std::uintptr_t>> by_size_{nodes_.get()};  // (size, begin)
  std::vector<Change> changes_;  // that neither of these knows of yet; never more than there is room for
  bool in_order_ = false;        // with these changes, they are all the free ranges
};

}  // namespace stowplan::allocator
