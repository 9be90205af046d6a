// Watches whether the steps of a loop lie in those of an outer loop.
//
//     steps     a  a  a  X  a  a  a  X  a ...       X: what an outer iteration does between its inner ones
//     lowest             ^           ^              a *mark*: where the odd step is lowest
//
// Most steps of an inner loop are alike, and those between two of its runs are odd. Where odd steps are lowest, three
// times in a row with the same requests between, the outer loop's step begins, if it holds bytes over the inner steps,
// which none of these could plan: at least 1 / kNotable of all that it asks for. An epoch of alike iterations holds
// less.
//
//     loops     a a a a b b b b c   a a a a b b b b c   a a a a ...
//     found          a       b          a       b           a
//
// Where an iteration has several inner loops, each is found in its turn. Where one is found three times in a row with
// the same requests between, of which at most half are in steps that are alike, an enclosing step begins at the lowest
// place between.
//
// O(1) for each request and each step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "grams.hpp"
#include "step_recorder.hpp"

namespace stowplan::profiler {

class EnclosingSteps {
 public:
  using Number = std::uint32_t;

  static constexpr Bytes kNotable = 25;
  static constexpr std::size_t kMarks = 8;             // places that may begin an enclosing step
  static constexpr Number kLongest = Number{1} << 15;  // a longer step would be a large plan for little
  static constexpr Number kVotes = 64;

  // Where an enclosing step begins.
  struct Found {
    std::uint64_t gram;  // the longest, before that place
    Bytes level;         // alive there
    Number length;       // of the step
  };

  // Before each request: `live` bytes; `grams` are those before it.
  void see(Bytes size, Bytes live, const Grams& grams) {
    if (live < lowest_.level) lowest_ = mark(live, grams);
    if (!loops_.empty() && live < loops_.back().lowest.level) loops_.back().lowest = mark(live, grams);
    bytes_ += size;
    ++clock_;
  }

  // A step begins: nothing is lower yet.
  void begin_step(Bytes live, const Grams& grams) {
    begun_ = grams.all();
    lowest_.level = live;
  }

  // A step of so many requests has ended; returns whether it was odd.
  bool end_step(Number length, const Grams& grams) {
    const std::uint64_t step = Grams::since(begun_, grams.all(), length);
    if (step != usual_step_ && votes_ != 0) {
      --votes_;
      return true;
    }
    if (votes_ == 0) {
      usual_step_ = step;
    } else {
      alike_ += length;
    }
    votes_ = std::min(votes_ + 1, kVotes);
    return false;
  }

  // Notes where an odd step of so many requests was lowest; `level`: alive at the inner loop's beginnings.
  std::optional<Found> note_odd(Number length, Bytes level) {
    const bool at_its_beginning = clock_ - lowest_.at >= length;  // then nothing was noted within the step
    if (at_its_beginning || lowest_.level >= level) return std::nullopt;
    const auto known =
        std::find_if(marks_.begin(), marks_.end(), [this](const Mark& mark) { return mark.gram == lowest_.gram; });
    Mark mark = lowest_;
    if (known == marks_.end()) {
      if (marks_.size() == kMarks) marks_.erase(marks_.begin());
      marks_.push_back(mark);
      return std::nullopt;
    }
    const bool again = repeats(mark, *known);
    const bool notable = (level - mark.level) * kNotable >= mark.bytes - known->bytes;
    *known = mark;
    if (!again || !notable) return std::nullopt;
    forget_marks();
    return Found{mark.gram, mark.level, mark.distance};
  }

  // Notes the place before a request where another loop was found: the steps are others from now on.
  std::optional<Found> note_loop(Bytes live, const Grams& grams) {
    forget_marks();
    Loop loop{mark(live, grams), mark(live, grams)};
    const auto known = std::find_if(loops_.rbegin(), loops_.rend(),
                                    [&](const Loop& other) { return other.found.gram == loop.found.gram; });
    if (known != loops_.rend() && repeats(loop.found, known->found) &&
        2 * (loop.found.alike - known->found.alike) <= loop.found.distance) {
      const auto lower = [](const Loop& one, const Loop& other) { return one.lowest.level < other.lowest.level; };
      const Mark lowest = std::min_element(known.base() - 1, loops_.end(), lower)->lowest;
      loops_.clear();
      return Found{lowest.gram, lowest.level, loop.found.distance};
    }
    if (loops_.size() == kMarks) loops_.erase(loops_.begin());
    loops_.push_back(loop);
    return std::nullopt;
  }

 private:
  // A place before a request.
  struct Mark {
    std::uint64_t gram = 0;
    Bytes level = 0;          // alive
    Number at = 0;            // by `clock_`
    std::uint64_t asked = 0;  // before it, as a hash
    Bytes bytes = 0;          // asked for before it
    Number alike = 0;         // requests before it in steps that are alike
    Number distance = 0;      // from the time before; 0 where there was none
    std::uint64_t between = 0;
  };
  struct Loop {
    Mark found;
    Mark lowest;  // from there until another one was found
  };

  Mark mark(Bytes live, const Grams& grams) const {
    return {grams[Grams::kLongest], live, clock_, grams.all(), bytes_, alike_, 0, 0};
  }

  // Whether a mark is as far from the time before as that from its own, with the same requests between.
  static bool repeats(Mark& mark, const Mark& before) {
    mark.distance = mark.at - before.at;
    mark.between = Grams::since(before.asked, mark.asked, mark.distance);
    return mark.distance == before.distance && mark.between == before.between && mark.distance <= kLongest;
  }

  // The steps are others from now on.
  void forget_marks() {
    marks_.clear();
    votes_ = 0;
  }

  Number clock_ = 0;              // requests
  Bytes bytes_ = 0;               // asked for
  std::uint64_t begun_ = 0;       // all requests before the running step, as a hash
  std::uint64_t usual_step_ = 0;  // of most steps (Boyer and Moore's vote)
  Number votes_ = 0;
  Number alike_ = 0;         // requests in steps that were as most steps
  Mark lowest_;              // of the running step
  std::vector<Mark> marks_;  // where odd steps are lowest, the last time
  std::vector<Loop> loops_;  // found in turn, the last ones
};

}  // namespace stowplan::profiler
