#include "rebuild.hpp"

#include <algorithm>
#include <cstddef>

#include "random.hpp"

namespace stowplan::scheduling {

namespace {

// Storages in a disturbed part: between these, and so many times as many are repaired.
constexpr std::size_t kFewest = 2, kMost = 40;
constexpr std::size_t kAround = 3;

// At first a schedule may be slower than the best by this share of its extra seconds.
constexpr double kSlack = 0.02;

// Of a hundred rounds: those that move operators; and how many they try to move.
constexpr std::size_t kOrders = 15;
constexpr std::size_t kShifts = 20;

// In a step without phases: of a hundred other rounds those that also move operators, and how many at most.
constexpr std::size_t kMoves = 50;
constexpr std::size_t kMoved = 3;

class Rebuild {
 public:
  Rebuild(Trial& trial, Descent& descent, const Places& places, std::uint64_t seed, const Stopwatch& watch)
      : trial_(trial), descent_(descent), places_(places), random_(seed), watch_(watch) {
    for (const Index storage : descent.storages()) free_ |= !places.movable.empty() && trial.may_go(storage);
  }

  void run(std::int64_t effort) {
    order_ = trial_.order();
    remember();
    if (descent_.storages().empty()) return;
    const std::int64_t begin = trial_.evaluations(), end = begin + effort;
    while (trial_.evaluations() < end && !watch_.expired()) {
      const double left = static_cast<double>(end - trial_.evaluations()) / static_cast<double>(effort);
      choose_part();
      if (!places_.movable.empty() && random_.below(100) < kOrders) {
        shift_operators(kShifts);
      } else {
        const bool moves = free_ && random_.below(100) < kMoves;
        if (moves) disturb_order();
        if (!moves || random_.below(2) == 0) disturb();
      }
      if (descent_.fall(scope_, false)) descent_.rise(scope_, false);
      const Worth& now = trial_.worth();
      if (better(now, best_)) {
        remember();
        if (now.excess == 0) watch_.report(now.peak, 0, now.seconds);
      } else if (now.excess > best_.excess || now.seconds > best_.seconds * (1 + kSlack * left)) {
        go_back();
      }
    }
    go_back();
  }

 private:
  bool better(const Worth& one, const Worth& other) const {
    return one.excess != other.excess ? one.excess < other.excess : one.seconds < other.seconds;
  }

  void remember() {
    best_ = trial_.worth();
    best_ways_ = trial_.all_ways();
    best_order_ = order_;
  }

  void go_back() {
    if (order_ != best_order_) {
      order_ = best_order_;
      trial_.set_order(order_);
    }
    trial_.set_ways(best_ways_);
  }

  void choose_part() {
    const std::vector<Index>& all = descent_.storages();
    const std::size_t width = std::min(all.size(), kFewest + random_.below(kMost - kFewest + 1));
    const std::size_t first = random_.below(all.size() - width + 1);
    const std::size_t margin = width * (kAround - 1) / 2 + 1;
    const std::size_t low = first > margin ? first - margin : 0;
    const std::size_t high = std::min(all.size(), first + width + margin);
    part_.assign(all.begin() + first, all.begin() + first + width);
    scope_.assign(all.begin() + low, all.begin() + high);
  }

  void disturb() {
    Move move;
    const std::size_t kind = random_.below(4);
    for (const Index storage : part_) {
      Way way = trial_.way(storage);
      if (kind == 0) {
        way = Way::kept;
      } else if (kind == 1) {
        way = Way::dropped;
      } else if (random_.below(3) == 0) {
        way = static_cast<Way>(random_.below(4));
      }
      if (trial_.may(storage, way)) move.push_back({storage, way});
      if (!trial_.may_go(storage)) continue;
      const Simulator& simulator = trial_.simulator();
      for (Index use = simulator.first_use(storage); use < simulator.first_use(storage + 1); ++use) {
        if (kind > 1 && random_.below(3) != 0) continue;
        const bool goes = kind == 1 || (kind > 1 && random_.below(2) == 0);
        move.push_back({storage, goes ? Way::dropped : Way::kept, use});
      }
    }
    trial_.make(move);
  }

  void move_operator(Index from, Index to) {
    if (from < to) {
      std::rotate(order_.begin() + from, order_.begin() + from + 1, order_.begin() + to + 1);
    } else {
      std::rotate(order_.begin() + to, order_.begin() + from, order_.begin() + from + 1);
    }
    trial_.set_order(order_);
  }

  // A random place between what it depends on and what depends on it; its own where there is no other.
  Index other_place(Index op) {
    const Simulator& simulator = trial_.simulator();
    Index low = 0, high = simulator.operators() - 1;
    for (const Index other : places_.before[op]) low = std::max(low, simulator.position(other) + 1);
    for (const Index other : places_.after[op]) high = std::min(high, simulator.position(other) - 1);
    if (low >= high) return simulator.position(op);
    return low + static_cast<Index>(random_.below(static_cast<std::size_t>(high - low + 1)));
  }

  // Move writers of the part anywhere, whatever that costs at first.
  void disturb_order() {
    const Simulator& simulator = trial_.simulator();
    for (std::size_t count = 1 + random_.below(kMoved); count > 0; --count) {
      const Index from = simulator.start(part_[random_.below(part_.size())]);
      const Index to = other_place(static_cast<Index>(simulator.order(from)));
      if (to != from) move_operator(from, to);
    }
  }

  // Move operators one by one, where that lowers the excess, or, where there is none, the bytes alive in all.
  void shift_operators(std::size_t count) {
    const Simulator& simulator = trial_.simulator();
    for (; count > 0 && !watch_.expired(); --count) {
      const Index op = places_.movable[random_.below(places_.movable.size())];
      const Index from = simulator.position(op), to = other_place(op);
      if (to == from) continue;
      const Worth before = trial_.worth();
      move_operator(from, to);
      const Worth& now = trial_.worth();
      if (better(before, now) || (!better(now, before) && now.area > before.area)) move_operator(to, from);
    }
  }

  Trial& trial_;
  Descent& descent_;
  const Places& places_;
  bool free_ = false;  // all operators may move
  Random random_;
  const Stopwatch& watch_;
  std::vector<Index> part_, scope_;
  std::vector<std::int64_t> order_, best_order_;
  Ways best_ways_;
  Worth best_;
};

}  // namespace

void rebuild(Trial& trial, Descent& descent, const Places& places, const Control& control, const Stopwatch& watch) {
  Rebuild(trial, descent, places, control.seed, watch).run(control.effort);
}

}  // namespace stowplan::scheduling
