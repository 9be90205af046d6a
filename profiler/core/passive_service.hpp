// The service of a recorder: it watches, and sends every request upstream.
//
// Steps are marked, or found (step_finder.hpp). Of those found it keeps the largest one that the next one repeated, and
// that one; or, as long as the finder's steps never repeat the one before, the largest that came again after others,
// and the one that followed it:
//
//     steps      a  b  b  b  c  b  b  ...     b: what comes now and then, as c or an epoch's end, is not the step
//                a  C  d  e  a  C  d  ...     C: images of different sizes; d shows what of C's stays alive
//
// A program may have several steps: phases one after the other, loops in loops. Each that the finder ever followed
// leaves a candidate, and how much of all that was asked for (request_history.hpp) it covers. The step is the candidate
// that covers most bytes; or a shorter one that covers nearly as much.
//
// If a call-site callback is set, it is called before each request, and its number is kept with the request.
//
// Beside the steps it counts the program's requests, of all threads that it sees. Steps of the same requests have one
// signature, so how often a step came is one look into a table. With each request of a step goes the most that the
// program had alive from then to the next one: older blocks, and what other threads have, are in it, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block_table.hpp"
#include "host_memory.hpp"
#include "peak_holders.hpp"
#include "request_history.hpp"
#include "step_finder.hpp"
#include "step_recorder.hpp"

namespace stowplan::profiler {

// What end_step() says of the step.
struct RecordedStep {
  std::vector<Event> log;
  std::vector<SiteNumber> sites;  // of each request, where they are known
  bool complete = false;          // the log holds all of the step
  std::uint64_t start = 0;        // of a step that was found: requests before it
  std::vector<Bytes> alive;       // of each request: the most alive until the next, of the whole program
  std::uint64_t signature = 0;    // of the requests: sizes and streams, in order
};
using TwoRecordedSteps = std::pair<RecordedStep, RecordedStep>;

// A step that was found, and how much of the program it is.
struct StepCandidate {
  TwoRecordedSteps steps;  // and the one after it
  std::uint64_t times;     // that it came, one not overlapping another
  double requests;         // share of all that it covers so
  double bytes;            // likewise
};

// The program around its steps.
struct ProgramCounts {
  std::uint64_t requests = 0;
  Bytes bytes = 0;
  Bytes peak = 0;                    // the most alive at once
  std::uint64_t other_requests = 0;  // of other threads than that of the steps
  Bytes other_bytes = 0;
  std::uint64_t steps = 0;  // that have ended, found or marked
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
    if (finder_ != nullptr && thread == owner_) {
      keep_steps(size, stream);
      history_.add(size, stream, recorder_.live_bytes());
    }
    ++counts_.requests;
    counts_.bytes += size;
    if (thread != owner_) {
      ++counts_.other_requests;
      counts_.other_bytes += size;
    } else if (recorder_.in_step()) {
      block.birth = recorder_.allocate(size, stream);
      alive_.push_back(live_);
      step_bytes_ += size;
      signature_ = signature_with(signature_, size, stream);
      if (alive_.size() == last_.requests) prefix_ = {alive_.size(), step_bytes_, signature_};
      if (who_asks_ != nullptr) sites_.push_back(site());
    }
    live_ += size;
    return {0, blocks_.insert(block), 0};
  }
  // There is a block now: what could not be had was never alive.
  void adopt(BlockId id, std::uintptr_t) {
    holders_.allocated(blocks_[id].site, blocks_[id].size);
    blocks_[id].was_alive = true;
    counts_.peak = std::max(counts_.peak, live_);
    if (recorder_.in_step() && !alive_.empty()) alive_.back() = std::max(alive_.back(), live_);
  }
  void cancel(BlockId id) {
    counts_.bytes -= blocks_[id].size;
    release(id);
  }
  bool release(BlockId id) {
    const Block& block = blocks_[id];
    live_ -= block.size;
    if (block.was_alive) holders_.freed(block.site, block.size);
    recorder_.free(block.birth, block.size);
    blocks_.erase(id);
    return true;
  }
  Bytes size_of(BlockId id) const { return blocks_[id].size; }

  void set_who_asks(WhoAsks who_asks, void* whom) { std::tie(who_asks_, whom_) = std::pair(who_asks, whom); }

  // False where a step is running already. One that was found is none, and no more are looked for.
  bool begin_step(ThreadId thread) {
    if (finder_ != nullptr) {
      finder_.reset();
      take_step();
      found_ = again_ = {};
      earlier_.clear();
      history_.clear();
      counts_.steps = counts_.step_requests = 0;
      counts_.step_bytes = 0;
      repeats_.clear();
    }
    if (recorder_.in_step()) return false;
    owner_ = thread;
    start_step();
    return true;
  }

  RecordedStep end_step() {
    if (finder_ == nullptr) count_step({alive_.size(), step_bytes_, signature_});
    return take_step();
  }

  // Finds steps among this thread's requests. Precondition: no step is running.
  void find_steps(ThreadId thread) {
    begin_step(thread);
    finder_ = std::make_unique<StepFinder>();
  }
  // The steps that were found, in the order of the program; none where no step came again. O(all requests) for each.
  std::vector<StepCandidate> candidates() const {
    std::vector<StepCandidate> all;
    const auto add = [&](const Found& found) {
      if (!found.steps) return;
      const RecordedStep& step = found.steps->first;
      const auto is_known = [&](const StepCandidate& other) { return same_requests(other.steps.first, step); };
      if (std::any_of(all.begin(), all.end(), is_known)) return;
      const std::uint64_t requests = requests_of(step);
      const std::uint64_t times = history_.count(step.start, requests);
      const auto share = [times](double of_step, double of_all) {
        return static_cast<double>(times) * of_step / of_all;
      };
      all.push_back({*found.steps, times,
                     share(static_cast<double>(requests), static_cast<double>(history_.requests())),
                     share(static_cast<double>(requested(step)), static_cast<double>(history_.bytes()))});
    };
    for (const Found& found : earlier_) add(found);
    add(latest());
    return all;
  }

  // Which of them is the step of the program.
  static std::size_t chosen(const std::vector<StepCandidate>& all) {
    double most = 0;
    for (const StepCandidate& candidate : all) most = std::max(most, candidate.bytes);
    std::size_t best = all.size();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].bytes < most * (1 - 1.0 / EnclosingSteps::kNotable)) continue;
      if (best == all.size() || requests_of(all[i].steps.first) < requests_of(all[best].steps.first)) best = i;
    }
    return best;
  }

  // What each call site held when the program had the most alive; see PeakHolders::at_peak.
  std::vector<PeakHolders::Holding> at_peak() { return holders_.at_peak(); }

  // Counts so far, with the repeats of a step. The running step counts where it began as the last one, in full.
  ProgramCounts program(std::uint64_t signature) const {
    ProgramCounts counts = counts_;
    const auto known = repeats_.find(signature);
    if (known != repeats_.end()) counts.repeats = known->second;
    if (recorder_.in_step() && prefix_.requests != 0 && prefix_.signature == last_.signature) {
      ++counts.steps;
      counts.step_requests += prefix_.requests;
      counts.step_bytes += prefix_.bytes;
      if (prefix_.signature == signature) ++counts.repeats;
    }
    return counts;
  }

 private:
  struct Block {
    Bytes size = 0;
    Stream stream = 0;
    Birth birth;
    SiteNumber site = kNoSite;
    bool was_alive = false;  // upstream had memory for it
  };

  // A step, or its beginning, as far as counting goes.
  struct Tally {
    std::size_t requests = 0;
    Bytes bytes = 0;
    std::uint64_t signature = 0;
  };
  static constexpr std::size_t kSignatures = 1 << 16;  // of those beyond, repeats are not counted

  static std::uint64_t signature_with(std::uint64_t signature, Bytes size, Stream stream) {
    std::uint64_t x = (signature ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29) ^ static_cast<std::uint64_t>(stream)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
  }

  static Tally tally_of(const RecordedStep& step) { return {step.alive.size(), requested(step), step.signature}; }

  void count_step(const Tally& step) {
    ++counts_.steps;
    counts_.step_requests += step.requests;
    counts_.step_bytes += step.bytes;
    last_ = step;
    if (repeats_.size() < kSignatures || repeats_.count(step.signature) != 0) ++repeats_[step.signature];
  }

  void start_step() {
    step_bytes_ = 0;
    signature_ = 0;
    prefix_ = {};
    recorder_.begin_step();
  }

  RecordedStep take_step() {
    const bool complete = !recorder_.truncated();
    return {recorder_.end_step(), std::exchange(sites_, {}), complete, start_, std::exchange(alive_, {}), signature_};
  }

  void keep_steps(Bytes size, Stream stream) {
    const std::uint32_t anchors = finder_->anchors();
    switch (finder_->observe(size, stream, recorder_.live_bytes())) {
      case StepFinder::Cue::none: return;
      case StepFinder::Cue::begins:
        count_step({alive_.size(), step_bytes_, signature_});
        if (one_awaits_the_next() || step_bytes_ > found_.bytes || unsettled_ > 0) {
          next(take_step());
        } else {
          drop_step();
        }
        if (finder_->anchors() != anchors) forget_candidates();
        break;
      case StepFinder::Cue::found: {
        const std::uint32_t first = finder_->first(), second = finder_->second();
        const std::vector<SiteNumber> sites = std::exchange(sites_, {});
        const std::vector<Bytes> alive = std::exchange(alive_, {});
        const bool complete = !recorder_.truncated();
        auto [one, two] = recorder_.end_two_steps(first, second);
        forget_candidates();
        for (auto& [log, from, to] : {std::tuple{std::move(one), std::size_t{first}, std::size_t{second}},
                                      std::tuple{std::move(two), std::size_t{second}, alive.size()}}) {
          RecordedStep step{log, {}, complete, start_ + from, {alive.begin() + from, alive.begin() + to}, 0};
          if (!sites.empty()) step.sites.assign(sites.begin() + from, sites.begin() + to);
          for (const Event& event : log) {
            if (event.kind == EventKind::allocate)
              step.signature = signature_with(step.signature, event.size, event.stream);
          }
          count_step(tally_of(step));
          next(std::move(step));
        }
        break;
      }
      case StepFinder::Cue::lost:
        forget_candidates();
        drop_step();
        break;
    }
    start_ = history_.requests();
    start_step();
  }

  void drop_step() {
    recorder_.drop_step();
    sites_.clear();
    alive_.clear();
  }

  // A step larger than the one found, and the one after it, once it is there.
  struct Candidate {
    RecordedStep step;
    std::optional<RecordedStep> after;
  };
  static constexpr std::size_t kCandidates = 8;
  static constexpr std::size_t kEarlier = 16;  // steps that were followed once
  // Repetitions that take the place of the pair that was found: the logs of the first steps lack the frees of blocks
  // from before it, which show how many steps a block outlives.
  static constexpr unsigned kSettling = 8;

  struct Found {
    std::optional<TwoRecordedSteps> steps;
    Bytes bytes = 0;  // that the first one asks for
  };

  bool one_awaits_the_next() const { return !candidates_.empty() && !candidates_.back().after; }

  const Found& latest() const { return again_.bytes > found_.bytes ? again_ : found_; }

  // Steps begin elsewhere from now on.
  void forget_candidates() {
    if (latest().steps) {
      if (earlier_.size() == kEarlier) earlier_.erase(earlier_.begin());
      earlier_.push_back(latest());
    }
    found_ = again_ = {};
    in_a_row_ = false;
    unsettled_ = 0;
    candidates_.clear();
  }

  // Takes a step that came right after the one before.
  void next(RecordedStep step) {
    if (!step.complete) return candidates_.clear();
    const bool follows = one_awaits_the_next();
    if (follows) candidates_.back().after = step;
    const Bytes bytes = requested(step);
    if (unsettled_ > 0 && bytes == found_.bytes && same_requests(found_.steps->second, step)) {
      --unsettled_;
      found_.steps = TwoRecordedSteps{std::move(found_.steps->second), std::move(step)};
      return candidates_.clear();
    }
    if (bytes <= found_.bytes) return;
    if (follows && same_requests(candidates_.back().step, step)) {
      found_ = {{{std::move(candidates_.back().step), std::move(step)}}, bytes};
      again_ = {};
      in_a_row_ = true;
      unsettled_ = kSettling;
      return candidates_.clear();
    }
    if (!in_a_row_ && bytes > again_.bytes) {
      const auto before = std::find_if(candidates_.begin(), candidates_.end(),
                                       [&](const Candidate& earlier) { return same_requests(earlier.step, step); });
      if (before != candidates_.end()) {
        again_ = {{{std::move(before->step), std::move(*before->after)}}, bytes};
        candidates_.erase(before);
      }
    }
    candidates_.push_back({std::move(step), std::nullopt});
    if (candidates_.size() > kCandidates) candidates_.pop_front();
  }

  static Bytes requested(const RecordedStep& step) {
    Bytes bytes = 0;
    for (const Event& event : step.log) bytes += event.kind == EventKind::allocate ? event.size : 0;
    return bytes;
  }

  static std::uint64_t requests_of(const RecordedStep& step) {
    return static_cast<std::uint64_t>(std::count_if(
        step.log.begin(), step.log.end(), [](const Event& event) { return event.kind == EventKind::allocate; }));
  }

  static bool same_requests(const RecordedStep& one, const RecordedStep& other) {
    auto a = one.log.begin(), b = other.log.begin();
    const auto request = [](const Event& event) { return event.kind == EventKind::allocate; };
    while (true) {
      a = std::find_if(a, one.log.end(), request);
      b = std::find_if(b, other.log.end(), request);
      if (a == one.log.end() || b == other.log.end()) return a == one.log.end() && b == other.log.end();
      if (a->size != b->size || a->stream != b->stream) return false;
      ++a, ++b;
    }
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
  Bytes step_bytes_ = 0;           // asked for in the running step
  std::uint64_t signature_ = 0;    // of the running step, so far
  Tally last_, prefix_;            // the last step; and the running one, where it had as many requests

  Bytes live_ = 0;  // of all blocks
  PeakHolders holders_;
  ProgramCounts counts_;
  std::unordered_map<std::uint64_t, std::uint64_t> repeats_;  // by signature

  std::unique_ptr<StepFinder> finder_;
  RequestHistory history_;
  std::uint64_t start_ = 0;           // requests before the running step
  std::vector<Found> earlier_;        // of former anchors
  std::deque<Candidate> candidates_;  // the latest last
  Found found_;                       // of steps in a row
  Found again_;                       // the finder's steps now, which are not
  bool in_a_row_ = false;             // one of them has repeated the one before
  unsigned unsettled_ = 0;            // repetitions that are still to take the place of `found_`
};

}  // namespace stowplan::profiler
