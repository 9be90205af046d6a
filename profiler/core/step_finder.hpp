// Finds the step of a program that does not say where its steps begin, from the requests as they come.
//
//     requests  p q r | a b c d e | a b c d e | a ...
//     live      _,-~'  \_/^^^\__,  \_/^^^\__,  \_       a step begins where live bytes come down to a valley ...
//               first two, q r b   d e          d e     ... and where the requests before it have come before
//
// A *place* is the point before a request. The last k requests before it (k in kGrams), each with its size, its stream
// and the bytes freed since the one before, are its *gram*; places of one gram are compared one after another. They may
// be beginnings of a step where
//
//   valley    at both, live bytes are as low as anywhere between, up to 1 / kTolerance of the rise between
//   regular   the distance is within a factor kIrregular of the one before
//
// A run of three such places ends two whole steps, the first that a plan can be made of. An inner loop makes such runs,
// too; so a run is believed only if it takes up half of all requests since the search began; or half of those since
// live bytes were last below its valley, and an eighth of all, and rises at least a quarter as high as anything did.
// Sentences of different lengths make steps of different requests; the place after the optimizer's update, whose
// requests are the same, is found all the same.
//
// From then on the gram is the *anchor*: a step begins wherever it ends with live bytes at about the level of the last
// beginning. Who follows a plan may know better, but not for long: where all requests are of one size, any plan fits,
// and after kAdrift beginnings without the anchor it alone counts until it comes. Where it does not come for twice a
// step's usual length, the search goes on beside it. Where most of the requests come in steps that begin high above
// their valley, as those of an inner loop do, the anchor is given up, and nothing shorter is taken for a step.
//
// Loops in loops. Steps may be the iterations of an inner loop (a solver's, in each time step). Where a step differs
// from most, the place where it is lowest may begin an *enclosing* one. Three such places with the same requests
// between them, and bytes that are held over the inner steps, which none of these could plan: at least 1 / kNotable of
// all that the enclosing step asks for. Then its anchor takes the inner one's place. An epoch of alike iterations stays
// what it is.
//
// O(log n) per request while searching, O(1) otherwise. Not synchronized.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "step_recorder.hpp"

namespace stowplan::profiler {

constexpr std::uint64_t power(std::uint64_t base, unsigned n) { return n == 0 ? 1 : base * power(base, n - 1); }

class StepFinder {
 public:
  using Number = std::uint32_t;  // of a request, counted from the last beginning

  static constexpr std::array<Number, 2> kGrams{4, 32};
  static constexpr Bytes kTolerance = 64;
  static constexpr Number kIrregular = 4;
  static constexpr Number kShare = 8;
  static constexpr Bytes kFlat = 4;
  static constexpr Bytes kLevel = 8;    // an anchor's live bytes may be off by this part of the rise
  static constexpr Number kDoubt = 2;   // steps' lengths that begin above the valley before an anchor is given up
  static constexpr Number kShort = 64;  // requests that a step may always have beyond its usual length
  static constexpr Number kAdrift = 2;
  static constexpr Bytes kNotable = 25;
  static constexpr std::size_t kMarks = 8;               // places that may begin an enclosing step
  static constexpr Number kEnclosing = Number{1} << 15;  // a longer one would be a large plan for little
  static constexpr Number kLongest = Number{1} << 19;    // a longer step is not found; bounds the memory of a search

  enum class Cue : std::uint8_t {
    none,
    begins,  // a step begins with this request
    found,   // as begins; and two whole steps lie before it: from first() to second(), and from there on
    lost     // kLongest requests without a beginning: all is forgotten
  };

  // What the caller believes of whether a step begins with a request.
  enum class Hint : std::uint8_t { none, it_does_not, it_does };

  // To be called before each request, with the bytes that are then alive of the requests before.
  Cue observe(Bytes size, Stream stream, Bytes live, Hint hint = Hint::none) {
    Cue cue = Cue::none;
    const bool anchored = anchor_set_ && at_anchor(live);
    if (begins(anchored, hint)) cue = Cue::begins;
    if (cue == Cue::begins) {
      adrift_ = anchored ? 0 : adrift_ + (anchor_set_ ? 1 : 0);
      note_beginning(live);
    }
    if (cue == Cue::none && number_ >= kLongest) {
      forget();
      cue = Cue::lost;
    }
    if (cue == Cue::none && !searching_ && number_ > 2 * usual_ + kShort) search();
    if (cue == Cue::none && searching_ && examine(live)) {
      usual_ = std::max(number_ - second_, second_ - first_);
      cue = Cue::found;
    }
    if (cue == Cue::begins || cue == Cue::found) begin(live);
    absorb(size, stream, live);
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
  struct Level {
    Number at;
    Bytes bytes;
  };
  // The last place of a gram, and the run of regular valleys that it ends.
  struct Place {
    Number last;
    Number distance;  // from the place before it; 0 where that is unknown
    Number run_from;
    int run;  // distances
  };

  // Where the odd steps of a loop are lowest.
  struct Mark {
    std::uint64_t gram;
    Number at;            // the last time, by `clock_`
    std::uint64_t asked;  // before it, as a hash
    Bytes bytes;          // asked for before it
    Number distance;      // from the time before; 0 where there was none
    std::uint64_t between;
  };

  // ----------------------------------------------------------------------------------------------------- the anchor

  // A plan of an inner loop ends within an enclosing step, and one of what lies between goes on beyond it.
  bool begins(bool anchored, Hint hint) const {
    if (adrift_ >= kAdrift) return anchored;
    if (!enclosing_) return hint == Hint::it_does || (hint == Hint::none && anchored);
    if (number_ < usual_ / 2) return hint == Hint::none && anchored;
    return hint == Hint::it_does || anchored;
  }

  bool at_anchor(Bytes live) const {
    if (gram_[anchor_kind_] != anchor_) return false;
    const Bytes off = live > level_ ? live - level_ : level_ - live;
    return off * kLevel <= high_ - std::min(low_, live);
  }

  void note_beginning(Bytes live) {
    usual_ = std::max(number_, usual_ - usual_ / 4 + number_ / 4);
    low_ = std::min(low_, live);
    if (adrift_ != 0) return look_around();  // this says nothing about the anchor
    const bool valley = (live - low_) * 4 <= high_ - low_;
    doubt_ = !valley ? doubt_ + number_ : doubt_ - std::min(number_, doubt_);
    if (doubt_ < kDoubt * usual_) return look_around();
    anchor_set_ = enclosing_ = false;
    doubt_ = 0;
    adrift_ = kAdrift;  // a plan of such steps would keep the search from ever ending
  }

  // ------------------------------------------------------------------------------------------------ enclosing steps

  // The step that ends here is compared with the others; if it is not like them, it may hold a mark.
  void look_around() {
    const std::uint64_t step = asked_ - begun_asked_ * to_the_power(number_);
    if (step == usual_step_ || votes_ == 0) {
      if (votes_ == 0) usual_step_ = step;
      votes_ = std::min(votes_ + 1, kVotes);
      return;
    }
    --votes_;
    const bool at_its_beginning = clock_ - lowest_at_ >= number_;  // then nothing was noted within the step
    if (!anchor_set_ || searching_ || at_its_beginning || lowest_ >= level_) return;
    const auto known =
        std::find_if(marks_.begin(), marks_.end(), [this](const Mark& mark) { return mark.gram == lowest_gram_; });
    Mark mark{lowest_gram_, lowest_at_, lowest_asked_, lowest_bytes_, 0, 0};
    if (known == marks_.end()) {
      if (marks_.size() == kMarks) marks_.erase(marks_.begin());
      marks_.push_back(mark);
      return;
    }
    mark.distance = mark.at - known->at;
    mark.between = mark.asked - known->asked * to_the_power(mark.distance);
    const bool again = mark.distance == known->distance && mark.between == known->between;
    const bool notable = (level_ - lowest_) * kNotable >= mark.bytes - known->bytes;
    *known = mark;
    if (!again || !notable || mark.distance > kEnclosing) return;
    ++anchors_;
    adrift_ = 0;
    enclosing_ = true;
    anchor_kind_ = kGrams.size() - 1;
    anchor_ = mark.gram;
    usual_ = mark.distance;
    marks_.clear();
    votes_ = 0;
    chosen_ = true;
  }

  static std::uint64_t to_the_power(Number n) {
    std::uint64_t result = 1;
    for (std::uint64_t square = kBase; n != 0; n >>= 1, square *= square) result *= (n & 1) != 0 ? square : 1;
    return result;
  }

  void begin(Bytes live) {
    number_ = 0;
    low_ = high_ = live;
    if (adrift_ == 0) level_ = live;  // of the anchor
    begun_asked_ = asked_;
    if (std::exchange(chosen_, false)) level_ = lowest_;
    lowest_ = live;
    if (searching_) {
      searching_ = false;
      live_ = {};
      lows_ = highs_ = {};
      places_ = {};
    }
    if (anchor_set_) return;
    search();
    note_place(live);
  }

  // ----------------------------------------------------------------------------------------------------- the search

  void search() {
    searching_ = true;
    from_ = number_;
  }

  void note_place(Bytes live) {
    if (number_ > from_) {
      while (!highs_.empty() && highs_.back().bytes <= after_) highs_.pop_back();
      highs_.push_back({number_ - 1, after_});
    }
    while (!lows_.empty() && lows_.back().bytes >= live) lows_.pop_back();
    lows_.push_back({number_, live});
    live_.push_back(live);
  }

  // Whether the place before this request completes a run that is to be believed.
  bool examine(Bytes live) {
    note_place(live);
    for (std::size_t kind = 0; kind < kGrams.size(); ++kind) {
      if (number_ - from_ < kGrams[kind]) continue;
      const auto [found, is_new] = places_[kind].try_emplace(gram_[kind], Place{number_, 0, number_, 0});
      if (!is_new && extend(found->second, live)) {
        anchor_set_ = true;
        enclosing_ = false;
        adrift_ = 0;
        marks_.clear();
        votes_ = 0;
        ++anchors_;
        anchor_kind_ = kind;
        anchor_ = gram_[kind];
        doubt_ = 0;
        return true;
      }
    }
    return false;
  }

  bool extend(Place& place, Bytes live) {
    const Number distance = number_ - place.last;
    const Bytes low = since(lows_, place.last);
    const Bytes rise = since(highs_, place.last) - low;
    const bool valley = std::max(live, live_[place.last - from_]) <= low + rise / kTolerance;
    const bool regular = distance / kIrregular <= place.distance && place.distance / kIrregular <= distance;
    if (!valley) {
      place.run = 0;
    } else if (place.run > 0 && regular) {
      ++place.run;
    } else {
      place.run = 1;
      place.run_from = place.last;
    }
    first_ = place.last - place.distance;
    second_ = place.last;
    place.last = number_;
    place.distance = distance;
    return place.run >= 2 && believable(place, low, rise);
  }

  bool believable(const Place& place, Bytes low, Bytes rise) const {
    const Number span = number_ - place.run_from, searched = number_ - from_;
    if (span < usual_) return false;
    if (2 * span >= searched) return true;
    // The last place with less alive is the highest of `lows_` that is below.
    const auto above =
        std::partition_point(lows_.begin(), lows_.end(), [&](Level x) { return x.bytes < low - rise / kTolerance; });
    const Number floor = above == lows_.begin() ? from_ : (above - 1)->at + 1;
    return kShare * span >= searched && 2 * span >= number_ - floor && kFlat * rise >= highs_.front().bytes - low;
  }

  // `levels` holds the places after which nothing is lower (or higher): the first one from `place` on is the extreme.
  static Bytes since(const std::vector<Level>& levels, Number place) {
    return std::partition_point(levels.begin(), levels.end(), [=](Level x) { return x.at < place; })->bytes;
  }

  // ------------------------------------------------------------------------------------------------------ the grams

  void absorb(Bytes size, Stream stream, Bytes live) {
    if (live < lowest_) note_lowest(live);
    std::uint64_t symbol = mix(static_cast<std::uint64_t>(size));
    bytes_ += size;
    ++clock_;
    symbol = mix(symbol ^ static_cast<std::uint64_t>(after_ - live));  // freed since the request before
    symbol = mix(symbol ^ static_cast<std::uint64_t>(stream));
    asked_ = asked_ * kBase + symbol;
    for (std::size_t kind = 0; kind < kGrams.size(); ++kind) {
      const std::uint64_t leaves = ring_[(seen_ - kGrams[kind]) % kRing];
      gram_[kind] = gram_[kind] * kBase + symbol - leaves * kPowers[kind];
    }
    ring_[seen_ % kRing] = symbol;
    ++seen_;
    ++number_;
    after_ = live + size;
    low_ = std::min(low_, live);
    high_ = std::max(high_, after_);
  }

  void note_lowest(Bytes live) {
    lowest_ = live;
    lowest_gram_ = gram_.back();
    lowest_at_ = clock_;
    lowest_asked_ = asked_;
    lowest_bytes_ = bytes_;
  }

  static constexpr std::uint64_t kBase = 0x9E3779B97F4A7C15u;
  static constexpr Number kRing = kGrams.back();

  static constexpr std::array<std::uint64_t, kGrams.size()> kPowers{power(kBase, kGrams[0]), power(kBase, kGrams[1])};
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
  }

  std::array<std::uint64_t, kRing> ring_{};  // the last requests; zeros before the first
  std::array<std::uint64_t, kGrams.size()> gram_{};
  std::uint64_t seen_ = kRing;
  Number number_ = 0;
  Bytes after_ = 0;           // alive after the request before
  Bytes low_ = 0, high_ = 0;  // least and most alive in the running step
  Bytes level_ = 0;           // alive at the last beginning that was at the anchor
  Number usual_ = 0;          // requests of a step; 0 where none is known
  Number adrift_ = 0;         // beginnings since the last one at the anchor
  Number doubt_ = 0;          // requests of steps that began above the valley, less those of others

  bool anchor_set_ = false;
  std::size_t anchor_kind_ = 0;
  std::uint64_t anchor_ = 0;

  // Of loops in loops.
  static constexpr Number kVotes = 64;
  bool enclosing_ = false;  // the anchor is that of an enclosing step
  bool chosen_ = false;     // since the last request
  Number anchors_ = 0;
  Number clock_ = 0;               // requests
  std::uint64_t asked_ = 0;        // all their symbols, as a hash
  std::uint64_t begun_asked_ = 0;  // before the running step
  Bytes bytes_ = 0;                // asked for
  std::uint64_t usual_step_ = 0;   // of most steps (Boyer and Moore's vote)
  Number votes_ = 0;
  Bytes lowest_ = 0;  // of the running step, and what was so at that place
  std::uint64_t lowest_gram_ = 0, lowest_asked_ = 0;
  Number lowest_at_ = 0;
  Bytes lowest_bytes_ = 0;
  std::vector<Mark> marks_;

  bool searching_ = true;
  Number from_ = 0;  // where the search began
  Number first_ = 0, second_ = 0;
  std::vector<Bytes> live_;  // at each place since
  std::vector<Level> lows_, highs_;
  std::array<std::unordered_map<std::uint64_t, Place>, kGrams.size()> places_;
};

}  // namespace stowplan::profiler
