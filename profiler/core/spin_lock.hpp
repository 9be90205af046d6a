// A lock for critical sections of some ten nanoseconds that are hardly ever contended: NumPy calls with the GIL held,
// so it is there for the rare free on a thread without it. Taking it costs one atomic exchange, a third of a mutex.
//
// A thread knows whether it holds one: what is called from within a critical section, as an allocator under malloc is
// by the containers that the section changes, must not wait for the same lock again.
#pragma once

#include <sched.h>

#include <atomic>

namespace stowplan::profiler {

class SpinLock {
 public:
  void lock() {
    ++held();
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire); ++spins) {
      // Whoever holds it may have been put to sleep in the middle.
      if (spins >= kSpins) sched_yield();
    }
  }
  void unlock() {
    locked_.store(false, std::memory_order_release);
    --held();
  }

  // Whether this thread holds, or waits for, any lock of this kind.
  static bool is_any_held() { return held() > 0; }

 private:
  static constexpr int kSpins = 64;

  // Not in the initial-exec model: a process with many libraries has no room left for the thread-locals of a late one.
  static int& held() {
    static thread_local int held = 0;
    return held;
  }

  std::atomic<bool> locked_{false};
};

}  // namespace stowplan::profiler
