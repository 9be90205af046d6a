// What happened in a step: requests numbered 0, 1, 2 ... and the frees between them.
//
//     step 7 begins            step 7 ends     step 8 begins
//        | a0  a1  f0  a2  a3  f1 |    f2  (between)  | a0 ...
//        |                        |     \_ logged at the head of step 8, as "free of the previous step's request 2"
//
// The log is complete for blocks of the running step and of the one before it, which is all that a profile needs: a
// block that outlives the following step has escaped. Costs one append per event, and allocates nothing once the log
// has grown to the length of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <new>
#include <utility>
#include <vector>

namespace stowplan::profiler {

using Bytes = std::int64_t;
using Stream = std::int64_t;

enum class EventKind : std::int8_t {
  allocate = 0,
  free = 1,           // of a block of the same step
  free_previous = 2,  // of a block of the step before
};

// The layout is the NumPy dtype `profiler.steps.EVENT_DTYPE`.
struct Event {
  std::int64_t time_ns;  // wall clock, 0 while timestamps are off
  Bytes size;
  Stream stream;
  std::uint32_t request;  // number of the request that made the block
  EventKind kind;
};
static_assert(sizeof(Event) == 32, "profiler.steps.EVENT_DTYPE mirrors this layout");

// Where a block comes from. `step` is 0 for blocks born outside every step (or in an interrupted part).
struct Birth {
  std::uint32_t step = 0;
  std::uint32_t request = 0;
};

class StepRecorder {
 public:
  // A longer step is not a repeating one: it is cut here and reported as incomplete.
  static constexpr std::size_t kMaxEvents = std::size_t{1} << 26;

  void begin_step() {
    in_step_ = true;
    requests_ = 0;
  }

  // Ends the step and returns its log; frees until the next step's begin open the next log.
  std::vector<Event> end_step() {
    in_step_ = false;
    ++step_;
    std::vector<Event> done;
    done.reserve(log_.capacity());
    std::swap(done, log_);
    truncated_ = false;
    return done;
  }

  Birth allocate(Bytes size, Stream stream) {
    const Birth birth{step_, requests_++};
    append({now(), size, stream, birth.request, EventKind::allocate});
    return birth;
  }

  void free(Birth birth, Bytes size, Stream stream) {
    if (birth.step == 0) return;
    if (birth.step == step_) {
      append({now(), size, stream, birth.request, EventKind::free});
    } else if (birth.step + 1 == step_) {
      append({now(), size, stream, birth.request, EventKind::free_previous});
    }
  }

  bool in_step() const { return in_step_; }
  bool truncated() const { return truncated_; }
  std::uint32_t requests() const { return requests_; }
  void set_timestamps(bool on) { timestamps_ = on; }

 private:
  // Frees come through here too, and a free must not fail: without memory for the log, the log ends.
  void append(const Event& event) noexcept {
    try {
      if (!truncated_ && log_.size() < kMaxEvents) return log_.push_back(event);
    } catch (const std::bad_alloc&) {
    }
    truncated_ = true;
  }

  std::int64_t now() const {
    if (!timestamps_) return 0;
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  }

  std::vector<Event> log_;
  std::uint32_t step_ = 1;  // the running step, or, between steps, the coming one
  std::uint32_t requests_ = 0;
  bool in_step_ = false;
  bool timestamps_ = false;
  bool truncated_ = false;
};

}  // namespace stowplan::profiler
