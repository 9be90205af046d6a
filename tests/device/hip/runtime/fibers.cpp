#include "fibers.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "faults.hpp"
#include "schedule.hpp"

namespace {

constexpr std::size_t kStack = std::size_t{128} << 10;
constexpr std::uint32_t kMostThreads = 1024;
constexpr std::uint32_t kWarp = SIMHIP_LANES;
constexpr std::size_t kSaved = 6;  // registers that simhip_switch keeps

}  // namespace

extern "C" {
void simhip_switch(void** save, void* load);
__thread SimCtx* simhip_ctx __attribute__((tls_model("initial-exec"))) = nullptr;
}

// Saves what a called function must keep, and the stack; goes on with another stack.
asm(R"(
.text
.globl simhip_switch
.hidden simhip_switch
.type simhip_switch,@function
simhip_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size simhip_switch,.-simhip_switch
)");

SimBlock::~SimBlock() {
  if (stacks_ != nullptr) munmap(stacks_, kStack * kMostThreads);
}

void SimBlock::yield() { simhip_switch(&stack_pointers_[current_], main_); }

void SimBlock::release(At where, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t i = begin; i < end; ++i) {
    if (at_[i] == where) at_[i] = At::runs;
  }
}

void SimBlock::release_warp(std::uint32_t warp) {
  warp_arrived_[warp] = 0;
  release(At::warp_barrier, warp * kWarp, std::min(threads_, (warp + 1) * kWarp));
}

void SimBlock::barrier() {
  at_[current_] = At::barrier;
  if (++arrived_ == alive_) {
    arrived_ = 0;
    release(At::barrier, 0, threads_);
  }
  yield();
}

void SimBlock::warp_barrier() {
  const std::uint32_t warp = current_ / kWarp;
  at_[current_] = At::warp_barrier;
  if (++warp_arrived_[warp] == warp_alive_[warp]) release_warp(warp);
  yield();
}

void SimBlock::late() {
  late_ = true;
  yield();
}

// A thread that is over holds nothing up.
void SimBlock::end() {
  const std::uint32_t warp = current_ / kWarp;
  at_[current_] = At::over;
  if (--alive_ != 0 && arrived_ == alive_) {
    arrived_ = 0;
    release(At::barrier, 0, threads_);
  }
  if (--warp_alive_[warp] != 0 && warp_arrived_[warp] == warp_alive_[warp]) release_warp(warp);
  yield();
}

void SimBlock::entry() {
  SimBlock* block = simhip_ctx->block;
  block->kernel_->run_threads(block->args_, simhip_ctx, block->current_, block->current_ + 1);
  block->end();
  std::abort();  // a thread that is over is not run
}

// The stacks begin at different places of their pages: otherwise all of them would share one set of the cache.
void SimBlock::lay_out_stack(std::uint32_t thread) {
  char* top = stacks_ + kStack * (thread + 1) - std::size_t{64} * (thread % 16) - 16;
  auto* words = reinterpret_cast<void**>(top);
  *--words = nullptr;  // where entry() would return to
  *--words = reinterpret_cast<void*>(&entry);
  words -= kSaved;
  std::memset(words, 0, kSaved * sizeof *words);
  stack_pointers_[thread] = words;
}

void SimBlock::prepare(const SimCtx& all, std::uint32_t threads) {
  if (stacks_ == nullptr) {
    void* mapped = mmap(nullptr, kStack * kMostThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    stacks_ = static_cast<char*>(mapped);
  }
  threads_ = alive_ = threads;
  arrived_ = 0;
  const std::uint32_t warps = (threads + kWarp - 1) / kWarp;
  stack_pointers_.assign(threads, nullptr);
  at_.assign(threads, At::runs);
  contexts_.assign(threads, all);
  slots_.assign(threads, 0);
  warp_arrived_.assign(warps, 0);
  warp_alive_.assign(warps, kWarp);
  if (threads % kWarp != 0) warp_alive_.back() = threads % kWarp;
  for (std::uint32_t i = 0; i < threads; ++i) {
    contexts_[i].block = this;
    contexts_[i].tid = i;
    lay_out_stack(i);
  }
}

// Runs each thread that can run, once; whether there was one.
bool SimBlock::run_each() {
  bool any = false;
  for (std::uint32_t i = 0; i < threads_; ++i) {
    if (at_[i] != At::runs) continue;
    any = true;
    current_ = i;
    simhip_ctx = &contexts_[i];
    simhip_switch(&main_, stack_pointers_[i]);
    if (!late_) continue;
    late_ = false;
    simhip::let_others_run();
  }
  return any;
}

void SimBlock::run(const SimKernel& kernel, void** args, const SimCtx& all, std::uint32_t threads) {
  kernel_ = &kernel;
  args_ = args;
  prepare(all, threads);
  while (alive_ != 0) {
    if (run_each()) continue;
    simhip::fault("has a block whose threads wait for each other, at barriers that not all of them come to");
    return;
  }
}

std::uint64_t SimBlock::shuffle(std::uint64_t value, std::uint32_t source) {
  const std::uint32_t from = current_ / kWarp * kWarp + source;
  slots_[current_] = value;
  warp_barrier();
  const std::uint64_t got = from < threads_ ? slots_[from] : value;
  warp_barrier();
  return got;
}

namespace simhip {

namespace {

thread_local std::vector<std::unique_ptr<SimBlock>> idle;

}  // namespace

BorrowedBlock::BorrowedBlock() {
  if (idle.empty()) idle.push_back(std::make_unique<SimBlock>());
  block_ = idle.back().release();
  idle.pop_back();
}

BorrowedBlock::~BorrowedBlock() { idle.emplace_back(block_); }

}  // namespace simhip

// What a compiled kernel calls. Where it has no barriers, a thread is alone.
extern "C" {

void simhip_barrier() {
  if (simhip_ctx->block != nullptr) simhip_ctx->block->barrier();
}

void simhip_warp_barrier() {
  if (simhip_ctx->block != nullptr) simhip_ctx->block->warp_barrier();
}

std::uint64_t simhip_shuffle(std::uint64_t value, std::uint32_t source, std::uint32_t) {
  return simhip_ctx->block != nullptr ? simhip_ctx->block->shuffle(value, source) : value;
}

// The device's clock: each reading takes half a millisecond of it, in which a piece of another stream's work runs. So a
// kernel that spins until n ticks are over is late by n, and takes little of the host's time.
long long simhip_clock() {
  constexpr long long kTicks = 1 << 20;
  static thread_local long long now = 0;
  if (simhip_ctx != nullptr && simhip_ctx->block != nullptr) {
    simhip_ctx->block->late();
  } else {
    simhip::let_others_run();
  }
  return now += kTicks;
}

}  // extern "C"
