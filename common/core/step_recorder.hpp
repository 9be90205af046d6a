// What happened in a step: requests numbered 0, 1, 2 ... and the frees between them.
//
//     step 7 begins            step 7 ends     step 8 begins
//        | a0  a1  f0  a2  a3  f1 |    f2  (between)  | a0 ...
//        |                        |     \_ logged at the head of step 8, as "free of the previous step's request 2"
//
// The log is complete for blocks of the running step and of the kMostAge ones before it: a loop that rotates its arrays
// (u, v, w = v, w, u) frees in each step what an earlier one has made. A block that is alive beyond them has escaped.
// A request that was refused made no block: it is not in the log, and those after it have the numbers that they would
// have without it.
//
// It is kept small, four bytes an event and sixteen a request, because a replayed step writes one too, in case it
// departs from its plan in the end; the wall clock is asked only while timestamps are on. Costs one append per event,
// and allocates nothing once the log has grown to the length of a step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <new>
#include <utility>
#include <vector>

namespace stowplan {

using Bytes = std::int64_t;
using Stream = std::int64_t;

enum class EventKind : std::int8_t {
  allocate = 0,
  free = 1,           // of a block of the same step
  free_previous = 2,  // of a block of the step before; 3: of the one before that; and so on
};

constexpr std::uint32_t kMostAge = 8;  // steps ago, in which a block was made whose free is logged

// The layout is the NumPy dtype `profiler.steps.EVENT_DTYPE`.
struct Event {
  std::int64_t time_ns;   // wall clock, 0 while timestamps are off
  Bytes size;             // 0 where a block of an earlier step is freed
  Stream stream;          // likewise
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
  // A step of more events is not a repeating one: its log is dropped, and reported as incomplete.
  static constexpr std::size_t kMaxEvents = std::size_t{1} << 26;

  explicit StepRecorder(std::size_t most_events = kMaxEvents) : most_events_(most_events) {}

  void begin_step() {
    in_step_ = true;
    next_request_ = 0;
  }

  // Ends the step; frees until the next step's begin open the next log. Returns the step's log.
  std::vector<Event> end_step() {
    std::vector<Event> step = log();
    drop_step();
    return step;
  }

  // Of the running step, so far.
  std::vector<Event> log() const {
    std::vector<Event> log;
    log.reserve(entries_.size());
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const auto kind = static_cast<EventKind>(entries_[i] & ((1u << kKindBits) - 1));
      const std::uint32_t request = entries_[i] >> kKindBits;
      const std::int64_t time = i < times_.size() ? times_[i] : 0;
      if (kind >= EventKind::free_previous) {
        log.push_back({time, 0, 0, request, kind});
        continue;
      }
      if (kind == EventKind::allocate && std::binary_search(refused_.begin(), refused_.end(), request)) continue;
      const auto [size, stream] = request < requests_.size() ? requests_[request] : Request{0, 0};
      log.push_back({time, size, stream, number_of(request, refused_), kind});
    }
    return log;
  }

  // As end_step(), for a step whose log is not wanted.
  void drop_step() {
    in_step_ = false;
    std::move_backward(past_.begin(), past_.end() - 1, past_.end());
    past_.front() = {truncated_ ? 0 : step_, std::exchange(refused_, {})};  // no step is 0
    ++step_;
    truncated_ = false;
    entries_.clear();
    requests_.clear();
    times_.clear();
  }

  Birth allocate(Bytes size, Stream stream) {
    const Birth birth{step_, next_request_++};
    try {
      if (!truncated_) requests_.emplace_back(size, stream);
    } catch (const std::bad_alloc&) {
      truncated_ = true;
    }
    append(static_cast<std::uint32_t>(EventKind::allocate), birth.request);
    return birth;
  }

  void free(Birth birth) {
    if (birth.step == 0) return;
    if (birth.step == step_) {
      append(static_cast<std::uint32_t>(EventKind::free), birth.request);
    } else if (birth.step + kMostAge >= step_) {
      free_earlier(birth);
    }
  }

  // Upstream has no memory for a request: where its step is over, it was a block until now.
  void refuse(Birth birth) {
    if (!is_current(birth)) return free(birth);
    try {
      refused_.insert(std::upper_bound(refused_.begin(), refused_.end(), birth.request), birth.request);
    } catch (const std::bad_alloc&) {
      truncated_ = true;
    }
  }

  // Steps since a birth; -1 where it was outside of all steps.
  std::int64_t age(Birth birth) const { return birth.step == 0 ? -1 : std::int64_t{step_} - birth.step; }

  bool in_step() const { return in_step_; }
  bool is_current(Birth birth) const { return birth.step == step_; }
  bool is_last(Birth birth) const { return is_current(birth) && birth.request + 1 == next_request_; }
  bool truncated() const { return truncated_; }
  void truncate() { truncated_ = true; }  // something of the step is not in its log
  std::uint32_t requests() const { return next_request_; }
  const std::vector<std::uint32_t>& refused() const { return refused_; }  // numbers of requests, sorted
  bool timestamps() const { return timestamps_; }
  void set_timestamps(bool on) { timestamps_ = on; }

 private:
  struct Request {
    Request(Bytes size, Stream stream) : size(size), stream(stream) {}  // in its place: a copy waits for what it copies
    Bytes size;
    Stream stream;
  };
  using Numbers = std::vector<std::uint32_t>;
  // A step that has ended.
  struct Past {
    std::uint32_t step = 0;
    Numbers refused;
  };
  static constexpr int kKindBits = 4;
  static_assert(kMaxEvents <= std::size_t{1} << (32 - kKindBits), "a request's number and a kind fit one entry");
  static_assert(static_cast<std::uint32_t>(EventKind::free) + kMostAge < 1u << kKindBits, "and so does every age");

  void free_earlier(Birth birth) noexcept {
    std::uint32_t kind = static_cast<std::uint32_t>(EventKind::free);
    for (const Past& past : past_) {
      ++kind;
      if (past.step == birth.step) return append(kind, number_of(birth.request, past.refused));
    }
  }

  // Frees come through here too, and a free must not fail: without memory for the log, the log ends.
  void append(std::uint32_t kind, std::uint32_t request) noexcept {
    if (truncated_) return;
    try {
      if (entries_.size() < most_events_) {
        entries_.push_back(request << kKindBits | kind);
        if (timestamps_) note_time();
        return;
      }
    } catch (const std::bad_alloc&) {
    }
    truncated_ = true;
    entries_ = {};
    requests_ = {};
    times_ = {};
  }

  void note_time() {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    times_.resize(entries_.size() - 1);  // events without a timestamp have 0
    times_.push_back(static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec);
  }

  // A request's number among those that were not refused.
  static std::uint32_t number_of(std::uint32_t request, const Numbers& refused) {
    const auto before = std::lower_bound(refused.begin(), refused.end(), request) - refused.begin();
    return request - static_cast<std::uint32_t>(before);
  }

  const std::size_t most_events_;
  std::vector<std::uint32_t> entries_;  // kind in the low bits, number of the request above
  std::vector<Request> requests_;       // by number
  std::vector<std::int64_t> times_;     // by entry, as far as there are any
  Numbers refused_;                     // requests that made no block
  std::uint32_t step_ = 1;              // the running step, or, between steps, the coming one
  std::uint32_t next_request_ = 0;
  std::array<Past, kMostAge> past_{};  // the latest first
  bool in_step_ = false;
  bool timestamps_ = false;
  bool truncated_ = false;
};

}  // namespace stowplan
