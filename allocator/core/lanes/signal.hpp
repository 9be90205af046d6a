// Wakes the thread that waits for it, or that will.
//
// A semaphore, because it has no owner and knows no waiters: a fork may come at any moment, and in the child neither a
// mutex that the waiting thread held nor a condition variable that remembers it could be used.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cerrno>

namespace stowplan::allocator {

class Signal {
 public:
  Signal() { sem_init(&semaphore_, 0, 0); }
  ~Signal() { sem_destroy(&semaphore_); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  void give() {
    if (!given_.exchange(true)) sem_post(&semaphore_);
  }
  void close() {
    closed_ = true;
    sem_post(&semaphore_);
  }
  // Waits until it was given since the last time; false where it was closed.
  bool wait() {
    while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
    given_ = false;
    return !closed_;
  }

 private:
  sem_t semaphore_;
  std::atomic<bool> given_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace stowplan::allocator
