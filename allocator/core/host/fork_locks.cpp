// The locks of pools that threads use without Python's knowledge, around a fork: the child has of all threads only the
// one that forked, and must find no lock held by another.

#include <pthread.h>

#include <atomic>

#include "host_pool.hpp"

namespace stowplan::allocator {

namespace {

struct Held {
  HostMemory& memory;
  const Held* before;
};

std::atomic<const Held*> newest{nullptr};
const Held* held = nullptr;  // by the thread that forks now; guarded by these locks

void hold_for_fork() {
  const Held* all = newest.load(std::memory_order_acquire);
  for (const Held* one = all; one != nullptr; one = one->before) {
    one->memory.lock().lock();  // first: it is held when the heap is told that an arena takes its place
    one->memory.service().heap().lock().lock();
  }
  held = all;
}

void let_go_after_fork() {
  for (const Held* one = held; one != nullptr; one = one->before) {
    one->memory.service().heap().lock().unlock();
    one->memory.lock().unlock();
  }
}

}  // namespace

void hold_over_forks(HostMemory& memory) {
  const Held* before = newest.load();
  newest.store(new Held{memory, before}, std::memory_order_release);
  if (before == nullptr) pthread_atfork(hold_for_fork, let_go_after_fork, let_go_after_fork);
}

}  // namespace stowplan::allocator
