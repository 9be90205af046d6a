// Wakes the thread that waits for it, or that will.
#pragma once

#include <condition_variable>
#include <mutex>

namespace stowplan::allocator {

class Signal {
 public:
  void give() { change(given_); }
  void close() { change(closed_); }
  // Waits until it was given since the last time; false where it was closed.
  bool wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return given_ || closed_; });
    given_ = false;
    return !closed_;
  }

 private:
  void change(bool& what) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      what = true;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
  bool closed_ = false;
};

}  // namespace stowplan::allocator
