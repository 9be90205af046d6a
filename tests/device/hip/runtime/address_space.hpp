// Addresses of one kind of memory: a range that hands out parts of itself, each as late as possible a second time.
//
//   |== a ==|.|== b ==|.|  free  |.|= c =|.| <- next          Parts are whole pages, with a free page (.) behind each,
//                                                             so that what runs over the end of a block is found.
//
// Next fit: a search begins where the last part ended, and goes round. So an address that was given back comes again
// only after all others, and a use after free meets memory that is nobody's. O(log n) to place, n parts alive, more
// after the first round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace simhip {

constexpr std::size_t kPage = 4096;

class AddressSpace {
 public:
  AddressSpace(std::uintptr_t base, std::size_t size) : base_(base), size_(size), next_(base) {}

  // The first address of a part; 0 where there is no room. The alignment is a power of 2, a page at least.
  std::uintptr_t take(std::size_t size, std::size_t alignment = kPage);
  void give(std::uintptr_t part) { parts_.erase(part); }

 private:
  std::uintptr_t find(std::uintptr_t from, std::uintptr_t to, std::size_t size, std::size_t alignment) const;

  std::uintptr_t base_;
  std::size_t size_;
  std::uintptr_t next_;
  std::map<std::uintptr_t, std::size_t> parts_;  // with the page behind
};

}  // namespace simhip
