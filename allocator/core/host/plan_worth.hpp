// Whether a plan can save what it costs, told from the page faults of the heap:
//
//     pages that the heap handed out without memory, though the program's need did not grow, are a share of the
//     process's page faults in a period; that share of its system time is kWorth of its CPU time, or more
//
// in `patience` periods in a row: two, and twice as many after each search in vain. The first period does not count:
// all memory is new in it. Bytes need no rule: the heap bounds itself, and pays for that with such page faults.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stowplan::allocator {

// What the process has used since it began.
struct ProcessUse {
  std::int64_t cpu = 0, system = 0;  // microseconds; `system` is a part of `cpu`
  std::int64_t faults = 0;           // minor page faults

  static ProcessUse now();
};

// What the heap counted in one period, in pages.
struct HeapPeriod {
  std::size_t most = 0, most_before = 0;  // in use at a time, in this period and in the one before
  std::size_t fresh = 0;                  // handed out without memory
};

class PlanWorth {
 public:
  static constexpr std::int64_t kWorth = 50;  // one part in so many

  // From any thread.
  bool pays() const { return pays_.load(std::memory_order_relaxed); }

  // The rest: one caller at a time.
  void period_ended(const HeapPeriod& period, const ProcessUse& use) {
    const bool now = !is_first_ && faults_pay(period, use);
    is_first_ = false;
    before_ = use;
    periods_ = now ? periods_ + 1 : 0;
    if (periods_ >= patience_) pays_.store(true, std::memory_order_relaxed);
  }
  void search_was_in_vain() {
    patience_ *= 2;
    periods_ = 0;
    pays_.store(false, std::memory_order_relaxed);
  }

 private:
  bool faults_pay(const HeapPeriod& period, const ProcessUse& use) const {
    const std::size_t grown = period.most > period.most_before ? period.most - period.most_before : 0;
    const auto again = static_cast<std::int64_t>(period.fresh > grown ? period.fresh - grown : 0);
    const std::int64_t faults = use.faults - before_.faults;
    const std::int64_t system = use.system - before_.system;
    const std::int64_t saved = again >= faults ? system : system * again / faults;
    return again > 0 && saved > 0 && saved * kWorth >= use.cpu - before_.cpu;
  }

  std::atomic<bool> pays_{false};
  bool is_first_ = true;
  unsigned periods_ = 0, patience_ = 2;
  ProcessUse before_;
};

}  // namespace stowplan::allocator
