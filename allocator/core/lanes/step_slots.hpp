// Which steps run: each in a *step slot*, which it takes when it begins and leaves when it ends.
//
//     step slot 0    thread A, in a step
//     step slot 1    thread B, in a step
//     step slot 2    free: thread C had it the last time
//
// A *runner* runs one step at a time: a thread, or the process (Scope). A step takes the step slot that its runner had
// the last time, or else the first free one, or a new one: there are as many as steps have ever run at once, however
// many threads come and go.
//
// O(step slots) for each call. Not synchronized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host_memory.hpp"

namespace stowplan::allocator {

using StepSlotNumber = std::uint16_t;

// Whose steps a pool tells apart.
//
//     thread     each thread runs steps of its own: one that calls the library has all that the library asks for
//     process    one step at a time: requests of all threads, in the order in which they come
//
// A library's own threads (PyTorch's for parts of an operator, or for the backward pass) ask for memory in the midst of
// their caller's step: then a step is the process's.
enum class Scope : std::uint8_t { thread, process };

// Names the thread or the process that runs a step; never 0.
using Runner = std::uintptr_t;

class StepSlots {
 public:
  explicit StepSlots(Scope scope) : scope_(scope), slots_(1) {}

  Scope scope() const { return scope_; }
  Runner runner_of(ThreadId thread) const { return scope_ == Scope::thread ? thread : 1; }

  bool any_running() const { return running_ > 0; }
  bool is_run_by(StepSlotNumber slot, Runner runner) const { return slots_[slot].runner == runner; }
  // Steps that the step slot has had, with the running one.
  std::uint64_t steps(StepSlotNumber slot) const { return slots_[slot].steps; }
  bool is_free(StepSlotNumber slot) const { return slots_[slot].runner == 0; }

  // The step slot of the runner's step; none where it runs none.
  std::optional<StepSlotNumber> of(Runner runner) const;
  // The same, or else the step slot that its step would take.
  StepSlotNumber nearest(Runner runner) const;
  // The step slots of steps that other threads have begun.
  std::vector<StepSlotNumber> of_others(ThreadId thread) const;
  // Those of steps whose threads have ended in them.
  std::vector<StepSlotNumber> of_ended_threads() const;

  // Takes a step slot for a step that this thread begins, which is not interrupted. Precondition: its runner runs none,
  // and it is the calling thread.
  StepSlotNumber take(ThreadId thread);
  void leave(StepSlotNumber slot);

  void set_interrupted(Runner runner, bool interrupted);
  bool is_interrupted(Runner runner) const;

 private:
  struct Slot {
    Runner runner = 0;  // whose step has it; 0 while it is free
    Runner last_runner = 0;
    ThreadId begun_by = 0;
    std::weak_ptr<void> life;  // of that thread
    std::uint64_t steps = 0;
  };
  template <class Condition>
  std::optional<StepSlotNumber> first(Condition condition) const;

  const Scope scope_;
  std::vector<Slot> slots_;
  std::size_t running_ = 0;
  std::vector<Runner> interrupted_;
};

}  // namespace stowplan::allocator
