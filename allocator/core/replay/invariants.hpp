// Invariants, asserted after every change in a debug build and by tests; and what is done under a lock.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace stowplan::allocator {

#ifdef STOWPLAN_DEBUG
constexpr bool kDebug = true;
#else
constexpr bool kDebug = false;
#endif

inline void require(bool condition, const char* invariant) {
  if (condition) return;
  std::fprintf(stderr, "stowplan: invariant broken: %s\n", invariant);
  std::abort();
}

// Returns a copy of what `f` does, under a lock.
template <class Mutex, class F>
auto locked(Mutex& mutex, F&& f) {
  const std::lock_guard<Mutex> lock(mutex);
  return f();
}

}  // namespace stowplan::allocator
