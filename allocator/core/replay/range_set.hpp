// Disjoint address ranges, sorted. O(log n) per operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace stowplan::allocator {

struct Range {
  std::uintptr_t begin;
  std::uintptr_t end;  // exclusive

  std::int64_t size() const { return static_cast<std::int64_t>(end - begin); }
  bool intersects(Range other) const { return begin < other.end && other.begin < end; }
  bool contains(Range other) const { return begin <= other.begin && other.end <= end; }
};

class RangeSet {
 public:
  bool empty() const { return ranges_.empty(); }
  std::size_t size() const { return ranges_.size(); }

  bool intersects(Range r) const {
    const auto after = ranges_.lower_bound(r.begin);
    if (after != ranges_.end() && after->first < r.end) return true;
    return after != ranges_.begin() && std::prev(after)->second > r.begin;
  }

  // How many ranges in the set it intersects.
  std::size_t count(Range r) const {
    auto at = ranges_.lower_bound(r.begin);
    if (at != ranges_.begin() && std::prev(at)->second > r.begin) --at;
    std::size_t found = 0;
    for (; at != ranges_.end() && at->first < r.end; ++at) ++found;
    return found;
  }

  // Precondition: disjoint from every range in the set.
  void insert(Range r) { ranges_.emplace(r.begin, r.end); }

  // Precondition: a range that begins here is in the set.
  void erase(std::uintptr_t begin) { ranges_.erase(begin); }
  void clear() { ranges_.clear(); }

 private:
  std::map<std::uintptr_t, std::uintptr_t> ranges_;  // begin -> end
};

}  // namespace stowplan::allocator
