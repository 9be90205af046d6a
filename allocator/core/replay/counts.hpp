// What a pool counts: the one list of names in the compiled half.
//
// `STOWPLAN_REASONS` and `STOWPLAN_COUNTS` declare the members and their names at once, so a count that is added here
// is in Python, too. What each means to a user stands in Python's list, allocator/counter_definitions.py and
// allocator/stats.py; tests/allocator/test_counter_definitions.py holds the names together.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan.hpp"

namespace stowplan::allocator {

#define STOWPLAN_REASONS(reason)                                                                       \
  reason(replayed)        /* served from the plan: the one that needs no reason */                     \
      reason(outside)     /* not in a step */                                                          \
      reason(thread)      /* not in a step, while another thread runs one */                           \
      reason(interrupted) /* between interrupt and resume */                                           \
      reason(no_plan)     /* warm-up, record and confirm */                                            \
      reason(escaped)     /* the plan knows that the block outlives the step */                        \
      reason(stream)      /* on a stream that has no lane */                                           \
      reason(unmapped)    /* the arena is still growing, and has no memory yet in the planned range */ \
      reason(late)        /* a late block stood in the planned range */                                \
      reason(mismatch)    /* extra, or larger than planned, or not recognised */                       \
      reason(unnoted)     /* there was no memory to note it */                                         \
      reason(heap_only)   /* while the heap served alone; counted when it no longer does, or when asked */

#define STOWPLAN_COUNTS(count)                                                                                      \
  count(std::uint64_t, smaller)                                  /* replayed in a slot larger than asked for */     \
      count(std::uint64_t, missing)                              /* planned requests that did not come */           \
      count(std::uint64_t, guests)                               /* not served from the plan, but from the arena */ \
      count(std::uint64_t, steps)                                /* that have ended */                              \
      count(Bytes, live_bytes)                                   /* asked for and not freed */                      \
      count(Bytes, peak_live_bytes) count(Bytes, upstream_bytes) /* live, and served by upstream */                 \
      count(Bytes, arena_bytes)                                  /* in memory, of all arenas, retired ones too */   \
      count(Bytes, kept_bytes)                                   /* free, and kept for later requests */            \
      count(Bytes, peak_reserved_bytes)

// Why a request was not served from the plan. `replayed` is the one that was.
enum class Reason : std::uint8_t {
#define STOWPLAN_ENUMERATOR(name) name,
  STOWPLAN_REASONS(STOWPLAN_ENUMERATOR)
#undef STOWPLAN_ENUMERATOR
      count_
};
constexpr std::size_t kReasons = static_cast<std::size_t>(Reason::count_);

using NamedCounts = std::vector<std::pair<std::string, std::int64_t>>;

struct Counters {
  struct StreamUse {
    std::int64_t stream = 0;
    Bytes live = 0, peak = 0;
  };

  static constexpr std::int64_t kNoStream = INT64_MIN;

  std::array<std::uint64_t, kReasons> requests{};  // by reason
  std::array<StreamUse, 8> streams{};              // of which the first `used_streams` are in use
  std::uint32_t used_streams = 0;
  Bytes most_live_before_reset = 0;
#define STOWPLAN_MEMBER(type, name) type name = 0;
  STOWPLAN_COUNTS(STOWPLAN_MEMBER)
#undef STOWPLAN_MEMBER

  std::uint64_t& of(Reason reason) { return requests[static_cast<std::size_t>(reason)]; }
  std::uint64_t of(Reason reason) const { return requests[static_cast<std::size_t>(reason)]; }

  // A block is alive, in memory that is held; `use`: that of its stream.
  void note_live(std::uint32_t use, Bytes size) {
    live_bytes += size;
    StreamUse& used = streams[use];
    used.live += size;
    used.peak = std::max(used.peak, used.live);
    peak_live_bytes = std::max(peak_live_bytes, live_bytes);
  }
  void note_dead(std::uint32_t use, Bytes size) {
    live_bytes -= size;
    streams[use].live -= size;
  }
  // Number of a stream's use. All streams after the first so many share the last one.
  std::uint32_t use_of(std::int64_t stream) {
    for (const std::int64_t sought : {stream, kNoStream}) {
      for (std::uint32_t i = 0; i < used_streams; ++i) {
        if (streams[i].stream != sought) continue;
        streams[i].stream = stream;
        return i;
      }
    }
    if (used_streams < streams.size()) streams[used_streams++].stream = stream;
    return used_streams - 1;
  }
  // Drops the peaks of streams that the pool no longer serves. A thread's own stream keeps its peak.
  void keep_streams(const std::vector<std::int64_t>& served) {
    for (StreamUse& use : streams) {
      if (use.stream < 0 || std::count(served.begin(), served.end(), use.stream) != 0) continue;
      use.peak = use.live;
      if (use.live == 0) use.stream = kNoStream;
    }
  }
  // The most bytes that each stream has had live at a time, in all: what a pool holds that keeps the memory of each
  // apart.
  Bytes peak_by_stream() const {
    Bytes sum = 0;
    for (const StreamUse& used : streams) sum += used.peak;
    return sum;
  }
  Bytes reserved_bytes() const { return arena_bytes + upstream_bytes + kept_bytes; }
  void note_peaks() {
    peak_live_bytes = std::max(peak_live_bytes, live_bytes);
    peak_reserved_bytes = std::max(peak_reserved_bytes, reserved_bytes());
  }
  // The most bytes that were live at a time, whatever was reset.
  Bytes most_live() const { return std::max(most_live_before_reset, peak_live_bytes); }
  // What is held now is the most.
  void reset_peaks() {
    most_live_before_reset = most_live();
    peak_live_bytes = live_bytes;
    peak_reserved_bytes = reserved_bytes();
    for (StreamUse& used : streams) used.peak = used.live;
  }

  // Requests by reason, and all other counts: under their names, in the order of the lists.
  NamedCounts named_requests() const {
#define STOWPLAN_NAMED(name) {#name, static_cast<std::int64_t>(of(Reason::name))},
    return {STOWPLAN_REASONS(STOWPLAN_NAMED)};
#undef STOWPLAN_NAMED
  }
  NamedCounts named() const {
#define STOWPLAN_NAMED(type, name) {#name, static_cast<std::int64_t>(name)},
    return {STOWPLAN_COUNTS(STOWPLAN_NAMED)};
#undef STOWPLAN_NAMED
  }
};

}  // namespace stowplan::allocator
