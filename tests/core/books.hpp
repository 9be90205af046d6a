// The live blocks of all threads, for the stress programs: no two of them overlap.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

#include "plan.hpp"
#include "stress.hpp"

namespace stress {

using stowplan::allocator::Bytes;

class Books {
 public:
  void add(void* address, Bytes size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const auto next = ranges_.upper_bound(begin);
    const auto end = begin + static_cast<std::uintptr_t>(size);
    if (next != ranges_.end() && next->first < end) fail("two blocks overlap");
    if (next != ranges_.begin() && std::prev(next)->second > begin) fail("two blocks overlap");
    ranges_[begin] = end;
  }
  void remove(void* address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ranges_.erase(reinterpret_cast<std::uintptr_t>(address)) != 1) fail("a block was never there");
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;
};

}  // namespace stress
