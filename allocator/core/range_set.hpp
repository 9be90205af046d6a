// Disjoint address ranges in a sorted vector. O(log n) to ask, O(n) moves of 16 bytes to change: the sets kept here
// (late blocks) are empty in a regular program and small in an irregular one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stowplan::allocator {

struct Range {
  std::uintptr_t begin;
  std::uintptr_t end;  // exclusive
};

class RangeSet {
 public:
  bool empty() const { return ranges_.empty(); }
  std::size_t size() const { return ranges_.size(); }

  bool intersects(Range r) const {
    const auto at = first_ending_after(r.begin);
    return at != ranges_.end() && at->begin < r.end;
  }

  // Precondition: disjoint from every range in the set.
  void insert(Range r) { ranges_.insert(first_ending_after(r.begin), r); }

  // As insert(), for many at once: O((n + m) log m).
  void insert_all(std::vector<Range> more) {
    const auto by_begin = [](Range a, Range b) { return a.begin < b.begin; };
    std::sort(more.begin(), more.end(), by_begin);
    const auto middle = static_cast<std::ptrdiff_t>(ranges_.size());
    ranges_.insert(ranges_.end(), more.begin(), more.end());
    std::inplace_merge(ranges_.begin(), ranges_.begin() + middle, ranges_.end(), by_begin);
  }

  // Precondition: a range that begins here is in the set.
  void erase(std::uintptr_t begin) { ranges_.erase(first_ending_after(begin)); }

  std::vector<Range>::const_iterator begin() const { return ranges_.begin(); }
  std::vector<Range>::const_iterator end() const { return ranges_.end(); }

 private:
  std::vector<Range>::const_iterator first_ending_after(std::uintptr_t address) const {
    return std::partition_point(ranges_.begin(), ranges_.end(), [=](Range x) { return x.end <= address; });
  }

  std::vector<Range> ranges_;
};

}  // namespace stowplan::allocator
