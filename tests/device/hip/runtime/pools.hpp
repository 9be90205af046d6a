// The stream-ordered allocator: hipMallocAsync and hipFreeAsync, from pools: one of each device, and the program's.
//
// A pool keeps what is freed, in bytes, for later requests: at once for the stream that freed it, and for others when
// the free has run. It does not keep addresses: each block has its own, and is inaccessible once its free has run, so a
// use after free, or a use on a stream that is not ordered behind the allocation, is a fault. So a pool reserves what
// it would if it could map any free bytes anywhere; that is the least that any such allocator reserves.
//
// Free bytes above the release threshold (0 at first) go back to the device when the program waits for it, for a
// stream or an event. Other devices may use what a pool holds where hipMemPoolSetAccess says so;
// hipDeviceEnablePeerAccess is not about it. All under the device's lock. O(f) a request for f frees that have not been
// used again.
#pragma once

#include "memory.hpp"
#include "schedule.hpp"

namespace simhip {

// The bytes of a freed block are free once the ticket is done; for the ticket's stream now.
void give_to_pool(const Block& block, const Ticket& freed);

// The program has waited: what is free above the threshold goes back.
void trim_pools_after_wait(int device);

// Memory is short: waits for the frees that were asked for, and gives all free bytes back. Whether there were any.
bool release_pools(Lock& lock, int device);

}  // namespace simhip
