// The default streams that each thread has for itself: CUDA has one name for all of them (kPerThread), a pool a
// negative number for each. No two threads ever have the same, as the stream of one that has ended may still work.
//
// O(log threads) when a thread is first asked for, when it ends, and to ask whether it has. Synchronized.
#pragma once

#include <mutex>
#include <set>

#include "plan.hpp"

namespace stowplan::allocator {

class ThreadStream {
 public:
  static Stream own() {
    thread_local const ThreadStream stream;
    return stream.number_;
  }
  // Whether it was the stream of a thread that is no longer there.
  static bool has_ended(Stream stream) {
    if (stream >= 0) return false;
    const std::lock_guard<std::mutex> lock(all().mutex);
    return all().alive.count(stream) == 0;
  }

 private:
  struct All {
    std::mutex mutex;
    std::set<Stream> alive;
    Stream last = -1;
  };
  static All& all() {
    static auto* const streams = new All;  // for good: threads end after everything else
    return *streams;
  }

  ThreadStream() {
    const std::lock_guard<std::mutex> lock(all().mutex);
    number_ = --all().last;
    all().alive.insert(number_);
  }
  ~ThreadStream() {
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().alive.erase(number_);
  }

  Stream number_ = 0;
};

}  // namespace stowplan::allocator
