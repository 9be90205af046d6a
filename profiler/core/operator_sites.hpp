// Which call site a thread's requests have while an operator runs: that with which the operator began. No Python in it.
//
//     thread 1   begins(7) .......... ends()       its requests: 7
//     thread 2        .  computes for it  .        its requests: 7, as long as no other operator runs
//
// Kernels compute on threads that run no operator themselves. Their requests have the site of the one that runs in the
// process; where there are several, the operator is unknown. O(1).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "passive_service.hpp"

namespace stowplan::profiler {

class OperatorSites {
 public:
  // An operator that no other one of this thread runs.
  static void begins(SiteNumber site) {
    mine() = site;
    running_ += packed(site);
  }
  // Does nothing in a thread where none began.
  static void ends() {
    if (!mine()) return;
    running_ -= packed(*mine());
    mine().reset();
  }

  // Whether this thread runs one, and its site, which may be kNoSite.
  static bool of_this_thread(SiteNumber* site) {
    if (mine()) *site = *mine();
    return mine().has_value();
  }

  // Of the only one that runs, or kNoSite.
  static SiteNumber of_the_only_one() {
    const std::uint64_t now = running_;
    return now >> kBits == 1 ? static_cast<SiteNumber>(now & ((std::uint64_t{1} << kBits) - 1)) - 1 : kNoSite;
  }

  // In a forked child the other threads run none.
  static void forget_others() { running_ = mine() ? packed(*mine()) : 0; }

 private:
  // How many run, above the sum of their sites, each one more than it is.
  static constexpr int kBits = 48;
  static std::uint64_t packed(SiteNumber site) {
    return (std::uint64_t{1} << kBits) + static_cast<std::uint64_t>(std::int64_t{site} + 1);
  }
  static std::optional<SiteNumber>& mine() {
    static thread_local std::optional<SiteNumber> site;
    return site;
  }

  inline static std::atomic<std::uint64_t> running_{0};
};

}  // namespace stowplan::profiler
