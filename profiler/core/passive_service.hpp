// The service of a recorder: it watches, and sends every request upstream.
//
// Steps are marked, or found (step_finder.hpp). Of those found it keeps the largest one that the next one repeated, and
// that one; or, as long as the finder's steps never repeat the one before, the largest that came again after others,
// and the one that followed it:
//
//     steps      a  b  b  b  c  b  b  ...     b: what comes now and then, as c or an epoch's end, is not the step
//                a  C  d  e  a  C  d  ...     C: images of different sizes; d shows what of C's stays alive
//
// Where somebody knows who asks, it is asked before each request, and its number is kept with the request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "block_table.hpp"
#include "host_memory.hpp"
#include "step_finder.hpp"
#include "step_recorder.hpp"

namespace stowplan::profiler {

using SiteNumber = std::int32_t;
constexpr SiteNumber kNoSite = -1;

// What end_step() says of the step.
struct RecordedStep {
  std::vector<Event> log;
  std::vector<SiteNumber> sites;  // of each request, where they are known
  bool complete = false;          // the log holds all of the step
};
using TwoRecordedSteps = std::pair<RecordedStep, RecordedStep>;

class PassiveService {
 public:
  // Called without the lock, and told `whom`; may allocate.
  using WhoAsks = SiteNumber (*)(void* whom);

  explicit PassiveService(const Upstream& upstream) : upstream_(upstream) { recorder_.set_timestamps(true); }
  Upstream upstream() const { return upstream_; }
  bool owns(const void*) const { return false; }
  std::uint64_t leaves() const { return 0; }

  void before_request() {
    if (who_asks_ != nullptr) site() = who_asks_(whom_);
  }

  Grant request(Bytes size, Stream stream, ThreadId thread) {
    Block block{size, stream, {}};
    if (finder_ != nullptr && thread == owner_) keep_steps(size, stream);
    if (recorder_.in_step() && thread == owner_) {
      block.birth = recorder_.allocate(size, stream);
      step_bytes_ += size;
      if (who_asks_ != nullptr) sites_.push_back(site());
    }
    return {0, blocks_.insert(block), 0};
  }
  void adopt(BlockId, std::uintptr_t) {}
  void cancel(BlockId id) { release(id); }
  bool release(BlockId id) {
    const Block& block = blocks_[id];
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
      end_step();
      found_ = again_ = {};
    }
    if (recorder_.in_step()) return false;
    owner_ = thread;
    step_bytes_ = 0;
    recorder_.begin_step();
    return true;
  }

  RecordedStep end_step() {
    const bool complete = !recorder_.truncated();
    return {recorder_.end_step(), std::exchange(sites_, {}), complete};
  }

  // Finds steps among this thread's requests. Precondition: no step is running.
  void find_steps(ThreadId thread) {
    begin_step(thread);
    finder_ = std::make_unique<StepFinder>();
  }
  // A step that was found and the one after it; none where no step came again.
  const std::optional<TwoRecordedSteps>& found() const {
    return again_.bytes > found_.bytes ? again_.steps : found_.steps;
  }

 private:
  struct Block {
    Bytes size = 0;
    Stream stream = 0;
    Birth birth;
  };

  void keep_steps(Bytes size, Stream stream) {
    switch (finder_->observe(size, stream, recorder_.live_bytes())) {
      case StepFinder::Cue::none: return;
      case StepFinder::Cue::begins:
        if (one_awaits_the_next() || step_bytes_ > found_.bytes) {
          next(end_step());
        } else {
          drop_step();
        }
        break;
      case StepFinder::Cue::found: {
        const std::uint32_t first = finder_->first(), second = finder_->second();
        const std::vector<SiteNumber> sites = std::exchange(sites_, {});
        const bool complete = !recorder_.truncated();
        auto [one, two] = recorder_.end_two_steps(first, second);
        const auto part = [&](std::size_t from, std::size_t to) {
          return sites.empty() ? sites : std::vector<SiteNumber>(sites.begin() + from, sites.begin() + to);
        };
        forget_candidates();
        next({std::move(one), part(first, second), complete});
        next({std::move(two), part(second, sites.size()), complete});
        break;
      }
      case StepFinder::Cue::lost:
        forget_candidates();
        drop_step();
        break;
    }
    step_bytes_ = 0;
    recorder_.begin_step();
  }

  void drop_step() {
    recorder_.drop_step();
    sites_.clear();
  }

  // A step larger than the one found, and the one after it, once it is there.
  struct Candidate {
    RecordedStep step;
    std::optional<RecordedStep> after;
  };
  static constexpr std::size_t kCandidates = 8;

  struct Found {
    std::optional<TwoRecordedSteps> steps;
    Bytes bytes = 0;  // that the first one asks for
  };

  bool one_awaits_the_next() const { return !candidates_.empty() && !candidates_.back().after; }

  // Steps begin elsewhere from now on.
  void forget_candidates() {
    if (again_.bytes > found_.bytes) found_ = std::move(again_);
    again_ = {};
    in_a_row_ = false;
    candidates_.clear();
  }

  // Takes a step that came right after the one before.
  void next(RecordedStep step) {
    if (!step.complete) return candidates_.clear();
    const bool follows = one_awaits_the_next();
    if (follows) candidates_.back().after = step;
    const Bytes bytes = requested(step);
    if (bytes <= found_.bytes) return;
    if (follows && same_requests(candidates_.back().step, step)) {
      found_ = {{{std::move(candidates_.back().step), std::move(step)}}, bytes};
      again_ = {};
      in_a_row_ = true;
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
  Bytes step_bytes_ = 0;           // asked for in the running step

  std::unique_ptr<StepFinder> finder_;
  std::deque<Candidate> candidates_;  // the latest last
  Found found_;                       // of steps in a row
  Found again_;                       // the finder's steps now, which are not
  bool in_a_row_ = false;             // one of them has repeated the one before
};

}  // namespace stowplan::profiler
