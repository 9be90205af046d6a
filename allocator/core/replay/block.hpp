// A block as the lane that served it knows it: one allocation, from its request to its free.
#pragma once

#include <cstdint>

#include "block_table.hpp"
#include "plan.hpp"
#include "range_set.hpp"
#include "step_recorder.hpp"

namespace stowplan::allocator {

class Replay;

enum class Where : std::uint8_t {
  nowhere,  // not in use
  upstream,
  slot,  // at its planned address, and the plan knows that it is there
  late,  // elsewhere in an arena, or in its slot for longer than planned
};

struct Block {
  std::uintptr_t address = 0;
  Bytes size = 0;
  Bytes capacity = 0;
  Stream stream = 0;
  Birth birth;
  RequestNumber slot = kNoRequest;
  std::uint32_t arena = 0;
  std::uint32_t use = 0;   // of its stream: see Counters
  Replay* lane = nullptr;  // that it came from
  Where where = Where::nowhere;
  bool held = false;  // free, but for other streams that may still use it

  bool is_unanswered() const { return where == Where::upstream && address == 0; }  // by upstream, yet
};

using Blocks = BlockTable<Block>;

inline Range range_of(const Block& block) {
  return {block.address, block.address + static_cast<std::uintptr_t>(block.capacity)};
}

}  // namespace stowplan::allocator
