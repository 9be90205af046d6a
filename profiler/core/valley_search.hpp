// Searches for places where a program comes back to the same valley: there its steps begin.
//
//     requests  p q r | a b c d e | a b c d e | a ...
//     live      _,-~'  \_/^^^\__,  \_/^^^\__,  \_       a step begins where live bytes come down to a valley ...
//               first two, q r b   d e          d e     ... and where the requests before it have come before
//
// A *place* is the point before a request. Places with one gram before them (grams.hpp) are compared one after another.
// They may be beginnings of a step where
//
//   valley    at both, live bytes are as low as anywhere between, up to 1 / kTolerance of the rise between
//   regular   the distance is within a factor kIrregular of the one before
//
// A run of three such places ends two whole steps, the first that a plan can be made of. An inner loop makes such runs,
// too; so a run is believed only if it takes up half of all requests since the search began; or half of those since
// live bytes were last below its valley, and 1 / kShare of all, and rises at least 1 / kFlat as high as anything did.
//
// O(log n) for each place.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "grams.hpp"
#include "step_recorder.hpp"

namespace stowplan::profiler {

class ValleySearch {
 public:
  using Number = std::uint32_t;  // of a request, as its owner counts

  static constexpr Bytes kTolerance = 64;
  static constexpr Number kIrregular = 4;
  static constexpr Number kShare = 8;
  static constexpr Bytes kFlat = 4;

  // Two whole steps: from `first` to `second`, and from there to the place examined.
  struct Found {
    std::size_t kind;  // of the gram before each
    Number first, second;
  };

  // The first place is the one before request `from`.
  explicit ValleySearch(Number from) : from_(from) {}

  // Takes up the place before a request: the bytes alive there, and after the request before it.
  void note(Number here, Bytes live, Bytes after) {
    if (here > from_) {
      while (!highs_.empty() && highs_.back().bytes <= after) highs_.pop_back();
      highs_.push_back({here - 1, after});
    }
    while (!lows_.empty() && lows_.back().bytes >= live) lows_.pop_back();
    lows_.push_back({here, live});
    live_.push_back(live);
  }

  // What the last place noted completes, if that is to be believed. No step is shorter than `usual`.
  std::optional<Found> examine(const Grams& grams, Number usual) {
    const Number here = from_ + static_cast<Number>(live_.size()) - 1;
    for (std::size_t kind = 0; kind < places_.size(); ++kind) {
      if (here - from_ < Grams::kLengths[kind]) continue;
      const auto [at, is_new] = places_[kind].try_emplace(grams[kind], Place{here, 0, here, 0});
      if (is_new) continue;
      const Found found{kind, at->second.last - at->second.distance, at->second.last};
      if (extend(at->second, here, usual)) return found;
    }
    return std::nullopt;
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

  bool extend(Place& place, Number here, Number usual) const {
    const Number distance = here - place.last;
    const Bytes low = since(lows_, place.last);
    const Bytes rise = since(highs_, place.last) - low;
    const bool valley = std::max(live_.back(), live_[place.last - from_]) <= low + rise / kTolerance;
    const bool regular = distance / kIrregular <= place.distance && place.distance / kIrregular <= distance;
    if (!valley) {
      place.run = 0;
    } else if (place.run > 0 && regular) {
      ++place.run;
    } else {
      place.run = 1;
      place.run_from = place.last;
    }
    place.last = here;
    place.distance = distance;
    const Number span = here - place.run_from;
    return place.run >= 2 && span >= usual && believable(span, here, low, rise);
  }

  bool believable(Number span, Number here, Bytes low, Bytes rise) const {
    const Number searched = here - from_;
    if (2 * span >= searched) return true;
    // The last place with less alive is the highest of `lows_` that is below.
    const auto above =
        std::partition_point(lows_.begin(), lows_.end(), [&](Level x) { return x.bytes < low - rise / kTolerance; });
    const Number floor = above == lows_.begin() ? from_ : (above - 1)->at + 1;
    return kShare * span >= searched && 2 * span >= here - floor && kFlat * rise >= highs_.front().bytes - low;
  }

  // `levels` holds the places after which nothing is lower (or higher): the first one from `place` on is the extreme.
  static Bytes since(const std::vector<Level>& levels, Number place) {
    return std::partition_point(levels.begin(), levels.end(), [=](Level x) { return x.at < place; })->bytes;
  }

  Number from_;
  std::vector<Bytes> live_;  // at each place
  std::vector<Level> lows_, highs_;
  std::array<std::unordered_map<std::uint64_t, Place>, Grams::kLengths.size()> places_;
};

}  // namespace stowplan::profiler
