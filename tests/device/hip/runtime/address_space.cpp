#include "address_space.hpp"

#include <iterator>

namespace simhip {

namespace {

std::uintptr_t up(std::uintptr_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

std::uintptr_t AddressSpace::find(std::uintptr_t from, std::uintptr_t to, std::size_t size,
                                  std::size_t alignment) const {
  std::uintptr_t at = up(from, alignment);
  auto behind = parts_.upper_bound(at);
  if (behind != parts_.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second > at) at = up(before->first + before->second, alignment);
  }
  for (; at + size <= to; ++behind) {
    while (behind != parts_.end() && behind->first < at) ++behind;
    if (behind == parts_.end() || at + size <= behind->first) return at;
    at = up(behind->first + behind->second, alignment);
  }
  return 0;
}

std::uintptr_t AddressSpace::take(std::size_t size, std::size_t alignment) {
  if (size == 0 || size > size_ - kPage) return 0;
  const std::size_t whole = up(size, kPage) + kPage;
  std::uintptr_t at = find(next_, base_ + size_, whole, alignment);
  if (at == 0) at = find(base_, base_ + size_, whole, alignment);
  if (at == 0) return 0;
  parts_.emplace(at, whole);
  next_ = at + whole;
  return at;
}

}  // namespace simhip
