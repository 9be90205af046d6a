// The service of a recorder: it watches, and sends every request upstream.
//
// Steps are marked, or found (step_finder.hpp); of those found it keeps the largest one that the next one repeated. Where
// somebody knows who asks, it is asked before each request, and its number is kept with the request.
#pragma once

#include <algorithm>
#include <cstdint>
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

class PassiveService {
 public:
  // Called without the lock, and told `whom`; may allocate.
  using WhoAsks = SiteNumber (*)(void* whom);

  explicit PassiveService(const Upstream&) { recorder_.set_timestamps(true); }

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
      found_.reset();
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
  // A step that was found and the one after it; none where no step repeated.
  const std::optional<std::pair<RecordedStep, RecordedStep>>& found() const { return found_; }

 private:
  struct Block {
    Bytes size = 0;
    Stream stream = 0;
    Birth birth;
  };

  void keep_steps(Bytes size, Stream stream) {
    switch (finder_->observe(size, stream, recorder_.live_bytes())) {
      case StepFinder::Cue::none:
        return;
      case StepFinder::Cue::begins:
        if (previous_ || step_bytes_ > found_bytes_) {
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
        previous_.reset();
        next({std::move(one), part(first, second), complete});
        next({std::move(two), part(second, sites.size()), complete});
        break;
      }
      case StepFinder::Cue::lost:
        drop_step();
        break;
    }
    step_bytes_ = 0;
    recorder_.begin_step();
  }

  void drop_step() {
    previous_.reset();
    recorder_.drop_step();
    sites_.clear();
  }

  // Takes the step that follows the previous one.
  void next(RecordedStep step) {
    const Bytes bytes = requested(step);
    if (!step.complete) {
      previous_.reset();
    } else if (previous_ && same_requests(*previous_, step) && bytes > found_bytes_) {
      found_ = {std::move(*previous_), std::move(step)};
      found_bytes_ = bytes;
      previous_.reset();
    } else {
      previous_ = std::move(step);
    }
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

  StepRecorder recorder_;
  BlockTable<Block> blocks_;
  ThreadId owner_ = 0;
  WhoAsks who_asks_ = nullptr;
  void* whom_ = nullptr;
  std::vector<SiteNumber> sites_;  // of the running step's requests
  Bytes step_bytes_ = 0;           // asked for in the running step

  std::unique_ptr<StepFinder> finder_;
  std::optional<RecordedStep> previous_;
  std::optional<std::pair<RecordedStep, RecordedStep>> found_;
  Bytes found_bytes_ = 0;
};

}  // namespace stowplan::profiler
