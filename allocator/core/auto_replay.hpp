// A replay core that finds the steps of its program by itself.
//
//     request ──> StepFinder ── a step begins ──> the running step ends: its outcome waits in a queue
//        │                                        the next one begins: it is expected to follow what expect() said
//        └─────> Replay                               ^                                │
//                                                     └── whoever makes plans <── take_outcomes(), Signal
//
// All that a request does is in here and under the owner's lock. Plans are made elsewhere, some time later; until then
// steps go on following what they followed. Of steps that did just that nothing is queued, so that a hot loop wakes
// nobody up.
//
// Steps are those of one thread, the one that asks most (Boyer and Moore's vote). An explicit begin_step() ends the
// search for good.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "replay.hpp"
#include "step_finder.hpp"

namespace stowplan::allocator {

// Wakes the thread that waits for it, or that will.
class Signal {
 public:
  void give() { change(given_); }
  void close() { change(closed_); }
  // Waits until it was given since the last time; false where it was closed.
  bool wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return given_ || closed_; });
    given_ = false;
    return !closed_;
  }

 private:
  void change(bool& what) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      what = true;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
  bool closed_ = false;
};

class AutoReplay : public Replay {
 public:
  using Replay::Replay;

  static constexpr std::size_t kMostWaiting = 64;
  static constexpr std::uint32_t kMostVotes = 4096;

  // From now on. Not while a step is running.
  void find_steps() { finder_ = std::make_unique<profiler::StepFinder>(); }

  Grant request(Bytes size, Stream stream, ThreadId thread) {
    if (finder_ != nullptr && !is_interrupted(thread) && is_watched(thread)) keep_steps(size, stream, thread);
    return Replay::request(size, stream, thread);
  }

  bool begin_step(ThreadId thread, PlanPtr plan, std::vector<PlanPtr> others);
  void set_interrupted(ThreadId thread, bool interrupted);

  // What the next steps may follow, as begin_step() has it, and the running one if it follows no plan. `wanted`: the
  // outcome of every step is.
  void expect(PlanPtr plan, std::vector<PlanPtr> others, bool wanted);

  std::vector<StepOutcome> take_outcomes();
  Signal& signal() { return signal_; }

 private:
  bool is_interrupted(ThreadId thread) const;
  bool is_watched(ThreadId thread);
  void keep_steps(Bytes size, Stream stream, ThreadId thread);
  void deliver(StepOutcome outcome);
  void break_off();

  std::unique_ptr<profiler::StepFinder> finder_;
  ThreadId watched_ = 0;
  std::uint32_t votes_ = 0;
  std::vector<ThreadId> interrupted_threads_;

  PlanPtr expected_;
  std::vector<PlanPtr> expected_others_;
  bool wanted_ = true;

  std::vector<StepOutcome> outcomes_;
  Signal signal_;
};

}  // namespace stowplan::allocator
