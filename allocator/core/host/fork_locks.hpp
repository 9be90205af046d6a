// The locks of pools that threads use without Python's knowledge, around a fork: the child has of all threads only the
// one that forked, and must find no lock held by another.
#pragma once

#include "host_pool.hpp"

namespace stowplan::allocator {

// Has forks hold a pool's locks from now on. It lives for ever. One caller at a time.
void hold_over_forks(HostMemory& memory);

}  // namespace stowplan::allocator
