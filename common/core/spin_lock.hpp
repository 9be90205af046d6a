// A lock for critical sections of some ten nanoseconds that are hardly ever contended: NumPy calls with the GIL held,
// so it is there for the rare free on a thread without it. Taking it costs one atomic exchange, a third of a mutex.
#pragma once

#include <sched.h>

#include <atomic>

namespace stowplan {

class SpinLock {
 public:
  void lock() {
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire); ++spins) {
      // Whoever holds it may have been put to sleep in the middle.
      if (spins >= kSpins) sched_yield();
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 64;

  std::atomic<bool> locked_{false};
};

}  // namespace stowplan
