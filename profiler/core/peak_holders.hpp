// Which call sites hold the most that a program ever has alive at once.
//
//     alive            ####             what each site holds is noted where the bytes begin to fall from a height that
//           ###       ######   ####     they never had before; a later maximum that is no higher changes nothing
//         #######  ################
//               ^          ^ noted, and noted again
//
// O(1) for each block and its end, but O(sites) where such a maximum ends.
#pragma once

#include <cstdint>
#include <vector>

#include "step_recorder.hpp"

namespace stowplan::profiler {

using SiteNumber = std::int32_t;
constexpr SiteNumber kNoSite = -1;

class PeakHolders {
 public:
  struct Holding {
    Bytes bytes = 0;
    std::uint64_t blocks = 0;
  };

  // Makes room for a site: what follows needs no memory for it.
  void expect(SiteNumber site) {
    const auto rows = static_cast<std::size_t>(site + 2);
    if (rows > at_peak_.capacity()) at_peak_.reserve(2 * rows);
    if (rows > now_.size()) now_.resize(rows);
  }
  void allocated(SiteNumber site, Bytes size) {
    Holding& holding = holding_of(site);
    holding.bytes += size;
    ++holding.blocks;
    live_ += size;
    if (live_ <= peak_) return;
    peak_ = live_;
    is_rising_ = true;
  }
  void freed(SiteNumber site, Bytes size) {
    note_maximum();
    Holding& holding = holding_of(site);
    holding.bytes -= size;
    --holding.blocks;
    live_ -= size;
  }

  // By site, that of kNoSite first, then site 0: what each held at the fullest moment, the first of several.
  const std::vector<Holding>& at_peak() {
    note_maximum();
    return at_peak_;
  }

 private:
  // The bytes are about to fall: if they were never higher, this is the fullest moment so far.
  void note_maximum() {
    if (is_rising_) at_peak_ = now_;
    is_rising_ = false;
  }
  Holding& holding_of(SiteNumber site) { return now_[static_cast<std::size_t>(site + 1)]; }

  std::vector<Holding> now_ = std::vector<Holding>(1), at_peak_ = now_;  // by site
  Bytes live_ = 0, peak_ = 0;
  bool is_rising_ = false;  // the bytes have not fallen since they were never higher
};

}  // namespace stowplan::profiler
