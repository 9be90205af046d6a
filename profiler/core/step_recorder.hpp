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
    previous_from_ = 0;
    std::vector<Event> done;
    done.reserve(log_.size());
    std::swap(done, log_);
    truncated_ = false;
    return done;
  }

  // Ends what turns out to have been several steps, the last two of which began at the requests `first` and `second`,
  // and returns the logs of these.
  std::pair<std::vector<Event>, std::vector<Event>> end_two_steps(std::uint32_t first, std::uint32_t second) {
    const std::vector<Event> all = end_step();
    previous_from_ = second;  // blocks keep the numbers that they have
    log_ = {};
    std::pair<std::vector<Event>, std::vector<Event>> two;
    bool in_first = false, in_second = false;
    for (Event event : all) {
      if (event.kind == EventKind::allocate) {
        in_second = event.request >= second;
        in_first = event.request >= first && !in_second;
      }
      if (event.kind == EventKind::free_previous || event.request < first || (!in_first && !in_second)) continue;
      const bool of_first = event.request < second;
      if (of_first && in_second) event.kind = EventKind::free_previous;
      event.request -= of_first ? first : second;
      (in_first ? two.first : two.second).push_back(event);
    }
    return two;
  }

  Birth allocate(Bytes size, Stream stream) {
    const Birth birth{step_, requests_++};
    live_bytes_ += size;
    append({now(), size, stream, birth.request, EventKind::allocate});
    return birth;
  }

  void free(Birth birth, Bytes size, Stream stream) {
    if (birth.step == 0) return;
    live_bytes_ -= size;
    if (birth.step == step_) {
      append({now(), size, stream, birth.request, EventKind::free});
    } else if (birth.step + 1 == step_ && birth.request >= previous_from_) {
      append({now(), size, stream, birth.request - previous_from_, EventKind::free_previous});
    }
  }

  // Sizes of the running step's requests.
  std::vector<Bytes> requested() const {
    std::vector<Bytes> sizes;
    for (const Event& event : log_) {
      if (event.kind == EventKind::allocate) sizes.push_back(event.size);
    }
    return sizes;
  }

  bool in_step() const { return in_step_; }
  Bytes live_bytes() const { return live_bytes_; }  // of all blocks born in steps
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
  std::uint32_t previous_from_ = 0;  // where the previous step began in its blocks' numbers
  Bytes live_bytes_ = 0;
  bool in_step_ = false;
  bool timestamps_ = false;
  bool truncated_ = false;
};

}  // namespace stowplan::profiler
