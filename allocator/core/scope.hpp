// Whose steps a pool tells apart.
//
//     thread     each thread runs steps of its own: one that calls the library has all that the library asks for
//     stream     each stream runs steps of its own, whichever threads ask for memory on it
//     process    one step at a time: requests of all threads, in the order in which they come
//
// A library's own threads (PyTorch's for parts of an operator, or for the backward pass) ask for memory in the midst of
// their caller's step. Mostly their requests come in one order, as the operators do; ThreadOrder sees where they do
// not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "host_memory.hpp"
#include "step_recorder.hpp"

namespace stowplan::allocator {

using profiler::Bytes;
using profiler::Stream;
using profiler::ThreadId;

enum class Scope : std::uint8_t { thread, stream, process };

// Names who runs a step; never 0. Within one scope no two have the same.
using Runner = std::uintptr_t;

inline Runner runner_of(Scope scope, ThreadId thread, Stream stream) {
  switch (scope) {
    case Scope::thread: return thread;
    case Scope::stream: return (static_cast<Runner>(stream) << 1) | 1u;
    case Scope::process: break;
  }
  return 1;
}

// Tells whether steps that ask for the same, thread by thread, ask in different orders: then each thread's requests are
// planned for themselves. O(1) per request as long as they come in runs of one thread; else O(threads).
class ThreadOrder {
 public:
  static constexpr std::size_t kMostThreads = 8;
  static constexpr std::size_t kRemembered = 8;  // steps that ask for different things

  void note(ThreadId thread, Bytes size, Stream stream) {
    if (latest_ >= threads_.size() || threads_[latest_].id != thread) find(thread);
    if (latest_ == kMostThreads) return;
    const std::uint64_t request = static_cast<std::uint64_t>(size) * kOdd + static_cast<std::uint64_t>(stream);
    Thread& one = threads_[latest_];
    one.digest = (one.digest ^ request) * kOdd;
    order_ = (order_ ^ (request + thread)) * kOdd;
  }

  // Ends a step: whether it asked for the same as an earlier one, thread by thread, but in another order.
  bool end_step();
  // The thread that was the first to ask in the step.
  ThreadId first() const { return threads_.empty() ? 0 : threads_.front().id; }

 private:
  struct Thread {
    ThreadId id;
    std::uint64_t digest;
  };
  struct Step {
    std::uint64_t requests;  // of each thread, whatever the order
    std::uint64_t order;
  };
  static constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;

  void find(ThreadId thread);

  std::vector<Thread> threads_;  // of the step, in the order in which they asked first
  std::size_t latest_ = 0;       // kMostThreads: another one
  std::uint64_t order_ = 0;
  std::vector<Step> steps_;
  std::size_t oldest_ = 0;
};

}  // namespace stowplan::allocator
