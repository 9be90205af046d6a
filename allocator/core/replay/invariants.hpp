// Invariants: asserted after every change in a debug build, and by tests.
#pragma once

#include <cstdio>
#include <cstdlib>

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

}  // namespace stowplan::allocator
