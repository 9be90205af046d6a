// A call of the driver that may wait for a stream, which may wait for a host function, which may need what this thread
// holds: Python's GIL. So while there is an Apart, the thread does not hold it. It comes before any lock of ours, and
// nothing that another thread may want with the GIL held is locked around such a call.
#pragma once

namespace stowplan::allocator {

class Apart {
 public:
  // The bindings set both. let_go() releases the GIL and returns the thread's state; null if the thread has no GIL.
  static inline void* (*let_go)() = nullptr;
  static inline void (*take_back)(void*) = nullptr;

  Apart() : held_(let_go != nullptr ? let_go() : nullptr) {}
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;
  ~Apart() {
    if (held_ != nullptr) take_back(held_);
  }

 private:
  void* held_;
};

}  // namespace stowplan::allocator
