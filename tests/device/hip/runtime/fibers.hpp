// The threads of a block, where they wait for each other: fibers of one thread of the host.
//
// Each has a stack, and runs until it comes to a barrier; then the next one runs. When all that are not over have come
// to the block's barrier (or their wave's), they go on. Where none can go on, they wait for each other, which is a
// fault. A switch costs some ten instructions. Stacks have no guard between them: 128 KiB are far more than a kernel's
// locals.
#pragma once

#include <cstdint>
#include <vector>

#include "simhip_abi.h"

struct SimBlock {
 public:
  SimBlock() = default;
  SimBlock(const SimBlock&) = delete;
  SimBlock& operator=(const SimBlock&) = delete;
  ~SimBlock();

  void run(const SimKernel& kernel, void** args, const SimCtx& all, std::uint32_t threads);

  void barrier();
  void warp_barrier();
  void late();  // others may run: the block's main stack lets them
  std::uint64_t shuffle(std::uint64_t value, std::uint32_t source);

 private:
  enum class At : std::uint8_t { runs, barrier, warp_barrier, over };

  static void entry();
  void prepare(const SimCtx& all, std::uint32_t threads);
  void lay_out_stack(std::uint32_t thread);
  void yield();
  void end();
  void release(At where, std::uint32_t begin, std::uint32_t end);
  void release_warp(std::uint32_t warp);
  bool run_each();

  const SimKernel* kernel_ = nullptr;
  void** args_ = nullptr;
  char* stacks_ = nullptr;
  void* main_ = nullptr;  // the stack pointer of what called run()
  std::uint32_t threads_ = 0;
  std::uint32_t alive_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t current_ = 0;
  bool late_ = false;
  std::vector<void*> stack_pointers_;
  std::vector<At> at_;
  std::vector<SimCtx> contexts_;
  std::vector<std::uint64_t> slots_;  // what a thread shows the others
  std::vector<std::uint32_t> warp_alive_;
  std::vector<std::uint32_t> warp_arrived_;
};

namespace simhip {

// A block of this thread's that is not in use: kernels run inside others, where those are late.
class BorrowedBlock {
 public:
  BorrowedBlock();
  ~BorrowedBlock();
  BorrowedBlock(const BorrowedBlock&) = delete;
  BorrowedBlock& operator=(const BorrowedBlock&) = delete;
  SimBlock* operator->() const { return block_; }

 private:
  SimBlock* block_;
};

}  // namespace simhip
