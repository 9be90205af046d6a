// What fills the memory: asked for by a report, or noted when upstream fails. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan.hpp"

namespace stowplan::allocator {

struct LiveBlock {
  Bytes size = 0;
  Stream stream = 0;
  std::int64_t age = -1;      // steps since its birth; -1: born outside of all steps
  std::uint32_t request = 0;  // its number in its lane's part of that step
  LaneNumber lane = 0;
  RequestNumber slot = kNoRequest;  // where planned: in the plan of its lane with this tag
  std::uint64_t tag = 0;
  // planned: in its slot of the plan that is followed
  // late: in an arena, where the plan that is followed does not expect it, or no longer
  // held: free, but for other streams that may still use it
  const char* place = "upstream";
};

// As one thread sees it: `step slot` is its step's, or the one that its step would take.
struct Situation {
  std::uint16_t step_slot = 0;
  bool in_step = false;
  std::uint64_t step = 0;      // number, from 1, of the step slot's running step, or of the coming one
  std::uint32_t requests = 0;  // of the step so far
  std::uint64_t planned_requests = 0;
  Bytes live_bytes = 0;
  Bytes upstream_bytes = 0;
  Bytes arena_bytes = 0;
  std::size_t offered = 0;  // blocks, as far as there is room for them
  LiveBlock largest[10];    // of these, sorted

  void offer(const LiveBlock& block) {
    constexpr std::size_t kMost = sizeof largest / sizeof *largest;
    if (offered == kMost && block.size <= largest[kMost - 1].size) return;
    std::size_t at = offered < kMost ? offered++ : kMost - 1;
    for (; at > 0 && largest[at - 1].size < block.size; --at) largest[at] = largest[at - 1];
    largest[at] = block;
  }
};

// A request that upstream had no memory for, and what it found. `number` counts failures; 0: none yet.
struct Failure {
  std::uint64_t number = 0;
  LiveBlock asked;
  Situation found;
};

}  // namespace stowplan::allocator
