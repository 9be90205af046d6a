// Finds the step of a program that does not say where its steps begin, from the requests as they come.
//
//              ┌───── found ─────> Anchored ── kAdrift beginnings without the anchor ──> Adrift ──┐
//     Searching                    ^  ^  └──── too many steps begin above the valley ──────> ^    │
//                                  │  └─────────────── the anchor comes, or another is found ─────┘
//                                  └── an enclosing step is found: its anchor takes the inner one's place
//
//   Searching   no step is known; a plan's step may say where one begins
//   Anchored    a step begins where the *anchor* comes: the requests before the valley that was found
//   (valley_search.hpp),
//               with live bytes at about the level of the last beginning; and where the plan that is followed says so
//   Adrift      the plan is not believed, and the anchor alone counts, if there still is one: where all requests are of
//               one size, any plan fits
//
// Sentences of different lengths make steps of different requests; the place after the optimizer's update, whose
// requests are the same, is found all the same. If the anchor does not come for twice a step's usual length, a search
// goes on beside it. If most requests come in steps that begin high above their lowest point, the anchor is given up.
// Steps of an outer loop are looked for beside all that (enclosing_steps.hpp).
//
// O(log n) per request while searching, O(1) otherwise. Not synchronized.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "enclosing_steps.hpp"
#include "grams.hpp"
#include "step_recorder.hpp"
#include "valley_search.hpp"

namespace stowplan::profiler {

class StepFinder {
 public:
  using Number = std::uint32_t;  // of a request, counted from the last beginning

  static constexpr Bytes kLevel = 8;  // an anchor's live bytes may be off by this part of the rise
  static constexpr Bytes kHigh = 4;   // a step begins above the valley where it does by more than this part of the rise
  static constexpr Number kDoubt = 2;   // steps' lengths that begin above the valley before an anchor is given up
  static constexpr Number kShort = 64;  // requests that a step may always have beyond its usual length
  static constexpr Number kAdrift = 2;
  static constexpr Number kLongest = Number{1} << 19;  // a longer step is not found; bounds the memory of a search

  enum class Cue : std::uint8_t {
    none,
    begins,  // a step begins with this request
    found,   // as begins; and two whole steps lie before it: from first() to second(), and from there on
    lost     // what came before is none: kLongest requests without a beginning, or part of an enclosing step
  };

  // What the caller believes of whether a step begins with a request.
  enum class Hint : std::uint8_t { none, it_does_not, it_does };

  // To be called before each request, with the bytes that are then alive of the requests before.
  Cue observe(Bytes size, Stream stream, Bytes live, Hint hint = Hint::none) {
    const Cue cue = look(live, hint);
    if (cue == Cue::begins || cue == Cue::found) begin(live);
    enclosing_.see(size, live, grams_);
    grams_.add(size, stream, after_ - live);
    ++number_;
    after_ = live + size;
    low_ = std::min(low_, live);
    high_ = std::max(high_, after_);
    return cue;
  }

  Number first() const { return first_; }
  Number second() const { return second_; }
  Number anchors() const { return anchors_; }  // that there have been, each of another step

  void forget() {
    const Number anchors = anchors_;
    *this = StepFinder();
    anchors_ = anchors;
  }

 private:
  enum class State : std::uint8_t { searching, anchored, adrift };

  struct Anchor {
    std::size_t kind;  // of gram
    std::uint64_t gram;
    bool encloses;  // it is that of an enclosing step
  };

  Cue look(Bytes live, Hint hint) {
    const bool anchored = at_anchor(live);
    if (begins(anchored, hint)) {
      const bool is_part = is_part_;
      if (anchored) is_part_ = false;
      end_step(live, anchored);
      if (!is_part) return Cue::begins;
      begin(live);
      return Cue::lost;
    }
    if (number_ >= kLongest) {
      forget();
      search_->note(0, live, 0);
      return Cue::lost;
    }
    if (!search_ && number_ > 2 * usual_ + kShort) search_.emplace(number_);
    return search_ && examine(live) ? Cue::found : Cue::none;
  }

  // ----------------------------------------------------------------------------------------------------- the anchor

  bool at_anchor(Bytes live) const {
    if (!anchor_ || grams_[anchor_->kind] != anchor_->gram) return false;
    const Bytes off = live > level_ ? live - level_ : level_ - live;
    return off * kLevel <= high_ - std::min(low_, live);
  }

  // A plan of an inner loop ends within an enclosing step, and one of what lies between goes on beyond it.
  bool begins(bool anchored, Hint hint) const {
    if (state_ == State::adrift) return anchored;
    if (!anchor_ || !anchor_->encloses) return hint == Hint::it_does || (hint == Hint::none && anchored);
    if (number_ < usual_ / 2) return hint == Hint::none && anchored;
    return hint == Hint::it_does || anchored;
  }

  void set_anchor(const Anchor& anchor) {
    ++anchors_;
    anchor_ = anchor;
    is_part_ = false;
    state_ = State::anchored;
    without_anchor_ = 0;
  }

  // The running step ends here.
  void end_step(Bytes live, bool anchored) {
    if (anchored) {
      state_ = State::anchored;
      without_anchor_ = 0;
    } else if (anchor_ && ++without_anchor_ >= kAdrift) {
      state_ = State::adrift;
    }
    usual_ = std::max(number_, usual_ - usual_ / 4 + number_ / 4);
    low_ = std::min(low_, live);
    if (is_doubtful(live)) {
      anchor_.reset();
      state_ = State::adrift;  // a plan of such steps would keep the search from ever ending
    } else if (enclosing_.end_step(number_, grams_) && anchor_ && !search_) {
      look_around();
    }
  }

  // Whether too many requests came in steps that began above the valley; a step that began without the anchor says
  // nothing about it.
  bool is_doubtful(Bytes live) {
    if (without_anchor_ != 0) return false;
    const bool valley = (live - low_) * kHigh <= high_ - low_;
    doubt_ = !valley ? doubt_ + number_ : doubt_ - std::min(number_, doubt_);
    if (doubt_ < kDoubt * usual_) return false;
    doubt_ = 0;
    return true;
  }

  void look_around() {
    const auto found = enclosing_.note_odd(number_, level_);
    if (!found) return;
    enclose(*found);
    chosen_level_ = found->level;
  }

  void enclose(const EnclosingSteps::Found& found) {
    set_anchor({Grams::kLongest, found.gram, true});
    usual_ = found.length;
  }

  void begin(Bytes live) {
    number_ = 0;
    low_ = high_ = live;
    if (without_anchor_ == 0 && state_ != State::adrift) level_ = std::exchange(chosen_level_, {}).value_or(live);
    enclosing_.begin_step(live, grams_);
    search_.reset();
    if (anchor_) return;
    search_.emplace(0);
    search_->note(0, live, after_);
  }

  // ----------------------------------------------------------------------------------------------------- the search

  // Whether the place before this request completes a run that is to be believed.
  bool examine(Bytes live) {
    search_->note(number_, live, after_);
    const auto found = search_->examine(grams_, usual_);
    if (!found) return false;
    doubt_ = 0;
    if (const auto enclosing = enclosing_.note_loop(live, grams_)) {
      enclose(*enclosing);
      level_ = enclosing->level;
      is_part_ = true;
      search_.reset();
      return false;
    }
    set_anchor({found->kind, grams_[found->kind], false});
    first_ = found->first;
    second_ = found->second;
    usual_ = std::max(number_ - second_, second_ - first_);
    return true;
  }

  State state_ = State::searching;
  std::optional<Anchor> anchor_;  // never while searching, always while anchored
  Number without_anchor_ = 0;     // beginnings since the last one at the anchor
  Number doubt_ = 0;              // requests of steps that began above the valley, less those of others
  Number anchors_ = 0;
  std::optional<ValleySearch> search_{ValleySearch(0)};  // none while the anchor comes as usual
  Number first_ = 0, second_ = 0;
  EnclosingSteps enclosing_;
  bool is_part_ = false;  // of an enclosing step: the running step, which began at another anchor

  Grams grams_;
  Number number_ = 0;
  Number usual_ = 0;                   // requests of a step; 0 where none is known
  Bytes after_ = 0;                    // alive after the request before
  Bytes low_ = 0, high_ = 0;           // least and most alive in the running step
  Bytes level_ = 0;                    // alive at the last beginning that was at the anchor
  std::optional<Bytes> chosen_level_;  // likewise, of the anchor chosen with this request
};

}  // namespace stowplan::profiler
