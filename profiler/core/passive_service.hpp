// The service of a recorder: it watches, and sends every request upstream.
//
// Steps are marked, or the program is logged, so that its steps can be chosen at the end (profiler/loop_iterations.py).
// The log is cut into segments of kSegment requests; of a program that has more than kMost of them, some are kept:
//
//     segments   0 1 . . . . . 7 8 9 . . . . 14 15 16       the first ones, the last ones, and those around the
//                              peak                         fullest moment so far
//
// If a call-site callback is set, it is called before each request, and its number is kept with the request. What each
// site asked for is counted for all of the program.
//
// Beside the steps it counts the program's requests, of all threads that it sees; one that upstream refused is none.
// Steps of the same requests have one
// signature, so how often a step came is one look into a table. With each request goes the most that the program had
// alive from then to the next one: older blocks, and what other threads have, are in it, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block_table.hpp"
#include "host_memory.hpp"
#include "peak_holders.hpp"
#include "step_recorder.hpp"

namespace stowplan::profiler {

// What end_step() says of the step; or a segment of the log.
struct RecordedStep {
  std::vector<Event> log;
  std::vector<SiteNumber> sites;  // of each request, where they are known
  bool complete = false;          // the log holds all of the step
  std::uint64_t start = 0;        // of a segment: requests of the log before it
  std::vector<Bytes> alive;       // of each request: the most alive until the next, of the whole program
  std::uint64_t signature = 0;    // of the requests: sizes and streams, in order
};

// What a call site asked for in the log, kept or not.
struct Asked {
  std::uint64_t requests = 0;
  Bytes bytes = 0;
};

// The program around its steps.
struct ProgramCounts {
  std::uint64_t requests = 0;
  Bytes bytes = 0;
  Bytes peak = 0;                    // the most alive at once
  std::uint64_t other_requests = 0;  // of other threads than that of the steps
  Bytes other_bytes = 0;
  std::uint64_t steps = 0;  // marked ones that have ended
  std::uint64_t step_requests = 0;
  Bytes step_bytes = 0;
  std::uint64_t repeats = 0;  // of one step
};

class PassiveService {
 public:
  // Called without the lock, and told `whom`; may allocate.
  using WhoAsks = SiteNumber (*)(void* whom);

  explicit PassiveService(const Upstream& upstream) : upstream_(upstream) { recorder_.set_timestamps(true); }
  Upstream upstream() const { return upstream_; }
  bool owns(const void*) const { return false; }
  bool is_bypassed() const { return false; }

  void before_request() {
    if (who_asks_ != nullptr) site() = who_asks_(whom_);
  }

  Grant request(Bytes size, Stream stream, ThreadId thread) {
    Block block{size, stream, {}, who_asks_ == nullptr ? kNoSite : site()};
    holders_.expect(block.site);
    if (is_logging_ && thread == owner_) {
      if (alive_.size() == kSegment) end_segment();
      asked_of(block.site) += size;
    }
    ++counts_.requests;
    counts_.bytes += size;
    block.is_others = thread != owner_;
    if (block.is_others) {
      ++counts_.other_requests;
      counts_.other_bytes += size;
    } else if (recorder_.in_step()) {
      block.birth = recorder_.allocate(size, stream);
      alive_.push_back(live_);
      if (who_asks_ != nullptr) sites_.push_back(site());
    }
    live_ += size;
    const BlockId id = blocks_.insert();
    blocks_[id] = block;
    return {0, id, 0};
  }
  // The step is recorded without the request, and so not as a whole.
  Grant pass_over(Bytes, ThreadId thread) {
    if (thread == owner_) recorder_.truncate();
    return {};
  }
  // There is a block now: what could not be had was never alive.
  void adopt(BlockId id, std::uintptr_t) {
    holders_.allocated(blocks_[id].site, blocks_[id].size);
    counts_.peak = std::max(counts_.peak, live_);
    if (recorder_.in_step() && !alive_.empty()) alive_.back() = std::max(alive_.back(), live_);
  }
  void cancel(BlockId id) {
    const Block& block = blocks_[id];
    live_ -= block.size;
    --counts_.requests;
    counts_.bytes -= block.size;
    if (block.is_others) {
      --counts_.other_requests;
      counts_.other_bytes -= block.size;
    } else if (is_logging_ && recorder_.is_current(block.birth)) {
      Asked& asked = asked_[static_cast<std::size_t>(block.site + 1)];
      --asked.requests;
      asked.bytes -= block.size;
    }
    recorder_.refuse(block.birth);
    blocks_.erase(id);
  }
  bool release(BlockId id) {
    const Block& block = blocks_[id];
    live_ -= block.size;
    holders_.freed(block.site, block.size);
    recorder_.free(block.birth);
    blocks_.erase(id);
    return true;
  }
  Bytes size_of(BlockId id) const { return blocks_[id].size; }

  void set_who_asks(WhoAsks who_asks, void* whom) { std::tie(who_asks_, whom_) = std::pair(who_asks, whom); }

  // What follows takes the lock that guards all the others.

  // False where a step is running already. Where the program was logged, the log is dropped.
  bool begin_step(SpinLock& lock, ThreadId thread) {
    const std::lock_guard<SpinLock> guard(lock);
    return begin(thread);
  }

  // Precondition: a marked step is running.
  RecordedStep end_step(SpinLock& lock) {
    const std::lock_guard<SpinLock> guard(lock);
    RecordedStep step = take_step();
    count_step(step);
    return step;
  }

  // Logs this thread's requests. Precondition: no step is running.
  void log_all(SpinLock& lock, ThreadId thread) {
    const std::lock_guard<SpinLock> guard(lock);
    begin(thread);
    is_logging_ = true;
    start_ = 0;
  }
  // How many segments are kept, the running one among them; and one of them, in order. O(requests) of it.
  std::size_t segments(SpinLock& lock) const {
    const std::lock_guard<SpinLock> guard(lock);
    return segments_.size() + 1;
  }
  RecordedStep segment(SpinLock& lock, std::size_t number) const {
    const std::lock_guard<SpinLock> guard(lock);
    return number < segments_.size() ? segments_[number] : running_step();
  }
  // What each call site asked for while the program was logged: kNoSite first, then site 0.
  std::vector<Asked> asked(SpinLock& lock) const {
    const std::lock_guard<SpinLock> guard(lock);
    return asked_;
  }

  // What each call site held when the program had the most alive; see PeakHolders::at_peak.
  std::vector<PeakHolders::Holding> at_peak(SpinLock& lock) {
    const std::lock_guard<SpinLock> guard(lock);
    return holders_.at_peak();
  }

  // Counts so far, with the repeats of a step.
  ProgramCounts program(SpinLock& lock, std::uint64_t signature) const {
    const std::lock_guard<SpinLock> guard(lock);
    ProgramCounts counts = counts_;
    const auto known = repeats_.find(signature);
    if (known != repeats_.end()) counts.repeats = known->second;
    return counts;
  }

 private:
  struct Block {
    Bytes size = 0;
    Stream stream = 0;
    Birth birth;
    SiteNumber site = kNoSite;
    bool is_others = false;  // of another thread than the steps'
  };

  static constexpr std::size_t kSignatures = 1 << 16;  // of those beyond, repeats are not counted

  static std::uint64_t signature_with(std::uint64_t signature, Bytes size, Stream stream) {
    std::uint64_t x = (signature ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29) ^ static_cast<std::uint64_t>(stream)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
  }

  bool begin(ThreadId thread) {
    if (is_logging_) {
      is_logging_ = false;
      take_step();
      segments_.clear();
      asked_.clear();
    }
    if (recorder_.in_step()) return false;
    owner_ = thread;
    recorder_.begin_step();
    return true;
  }

  void count_step(const RecordedStep& step) {
    ++counts_.steps;
    counts_.step_requests += step.alive.size();
    for (const Event& event : step.log) {
      if (event.kind == EventKind::allocate) counts_.step_bytes += event.size;
    }
    if (repeats_.size() < kSignatures || repeats_.count(step.signature) != 0) ++repeats_[step.signature];
  }

  // The step so far, without the requests that upstream refused.
  RecordedStep running_step() const {
    RecordedStep step{recorder_.log(), {}, !recorder_.truncated(), start_, {}, 0};
    auto refused = recorder_.refused().begin();
    for (std::size_t i = 0; i < alive_.size(); ++i) {
      if (refused != recorder_.refused().end() && *refused == i) {
        ++refused;
        if (!step.alive.empty()) step.alive.back() = std::max(step.alive.back(), alive_[i]);
        continue;
      }
      step.alive.push_back(alive_[i]);
      if (i < sites_.size()) step.sites.push_back(sites_[i]);
    }
    for (const Event& event : step.log) {
      if (event.kind != EventKind::allocate) continue;
      step.signature = signature_with(step.signature, event.size, event.stream);
    }
    return step;
  }

  RecordedStep take_step() {
    RecordedStep step = running_step();
    recorder_.drop_step();
    sites_.clear();
    alive_.clear();
    return step;
  }

  static constexpr std::size_t kSegment = std::size_t{1} << 17;   // requests, of some 80 bytes each
  static constexpr std::size_t kMost = 8, kFirst = 2, kLast = 3;  // segments that are kept

  void end_segment() {
    const std::uint64_t requests = alive_.size();
    segments_.push_back(take_step());
    start_ += requests;
    recorder_.begin_step();
    if (segments_.size() <= kMost) return;
    const auto highest = [](const RecordedStep& segment) {
      return *std::max_element(segment.alive.begin(), segment.alive.end());
    };
    const auto fullest = std::max_element(
        segments_.begin(), segments_.end(),
        [&](const RecordedStep& one, const RecordedStep& other) { return highest(one) < highest(other); });
    const auto peak = static_cast<std::size_t>(fullest - segments_.begin());
    std::size_t dropped = kFirst;
    while (dropped + 1 >= peak && dropped <= peak + 1) ++dropped;
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(std::min(dropped, segments_.size() - kLast - 1)));
  }

  // The bytes that a site has asked for, one request more.
  Bytes& asked_of(SiteNumber site) {
    const auto row = static_cast<std::size_t>(site + 1);
    if (row >= asked_.size()) asked_.resize(row + 1);
    ++asked_[row].requests;
    return asked_[row].bytes;
  }

  static SiteNumber& site() {
    static thread_local SiteNumber number = kNoSite;
    return number;
  }

  const Upstream upstream_;
  StepRecorder recorder_;
  BlockTable<Block> blocks_;
  ThreadId owner_ = 0;
  WhoAsks who_asks_ = nullptr;
  void* whom_ = nullptr;
  std::vector<SiteNumber> sites_;  // of the running step's requests
  std::vector<Bytes> alive_;       // likewise: the most alive until the next

  Bytes live_ = 0;  // of all blocks
  PeakHolders holders_;
  ProgramCounts counts_;
  std::unordered_map<std::uint64_t, std::uint64_t> repeats_;  // by signature

  bool is_logging_ = false;
  std::uint64_t start_ = 0;  // of the running segment
  std::vector<RecordedStep> segments_;
  std::vector<Asked> asked_;  // by site
};

}  // namespace stowplan::profiler
