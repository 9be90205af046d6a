#include "descent.hpp"

#include <algorithm>

namespace stowplan::scheduling {

namespace {

constexpr Way kWays[] = {Way::kept, Way::dropped, Way::packed, Way::swapped, Way::on_demand};

// What counts as free: a move that costs less than this share of all seconds is as good as one that costs nothing.
constexpr double kFree = 1e-7;

// Seconds closer than this are equal: sums of the same terms in another order differ in their last bits.
constexpr double kSame = 1e-12;

}  // namespace

Descent::Descent(Trial& trial, const std::vector<std::vector<Index>>& groups, double total_seconds,
                 const Stopwatch& watch)
    : trial_(trial),
      groups_(groups),
      watch_(watch),
      seconds_(trial.simulator().values(), 0.0),
      least_seconds_(std::max(total_seconds * kFree, kSame)) {
  const Simulator& simulator = trial.simulator();
  for (Index op = 0; op < simulator.operators(); ++op) {
    for (const Index s : simulator.makes(op)) seconds_[s] += simulator.seconds(op);
  }
  for (Index s = 0; s < simulator.values(); ++s) {
    int ways = 0;
    for (const Way way : kWays) ways += trial.may(s, way);
    if (ways > 1) storages_.push_back(s);
  }
  std::stable_sort(storages_.begin(), storages_.end(),
                   [&](Index one, Index other) { return simulator.start(one) < simulator.start(other); });
}

void Descent::change_to(Move& move, Index storage, Way way) const {
  if (trial_.may(storage, way) && trial_.way(storage) != way) move.push_back({storage, way});
}

void Descent::find_rewritten() {
  rewritten_.assign(seconds_.size(), 0);
  for (const Index op : trial_.simulator().rerun_operators()) {
    for (const Index storage : trial_.simulator().makes(op)) rewritten_[storage] = 1;
  }
}

void Descent::find_crowded() {
  const std::vector<Bytes>& live = trial_.simulator().live();
  crowded_.assign(live.size() + 1, 0);
  for (std::size_t p = 0; p < live.size(); ++p) crowded_[p + 1] = crowded_[p] + (live[p] > trial_.budget());
}

// The most that a storage can be worth when it goes between two positions; 0 if it cannot help.
double Descent::most_worth(Index storage, Index idle, Index back) const {
  const Simulator& simulator = trial_.simulator();
  back = std::min(back, simulator.operators());
  if (idle + 1 >= back) return 0.0;
  const double gain =
      static_cast<double>(simulator.size(storage)) * static_cast<double>(crowded_[back] - crowded_[idle + 1]);
  return gain / std::max(seconds_[storage], least_seconds_);
}

// That a storage goes between two uses, or no longer does.
void Descent::add_gaps(Index storage, Heap& heap, std::vector<std::int32_t>& simulated) {
  const Simulator& simulator = trial_.simulator();
  const auto* uses = simulator.placed(storage);
  for (Index k = 0; k + 1 < simulator.use_count(storage); ++k) {
    const auto [idle, use] = uses[k];
    const auto number = static_cast<std::int32_t>(moves_.size());
    if (trial_.way(storage) == Way::dropped && simulator.goes(use)) {
      if (!rewritten_[storage]) continue;
      simulated.push_back(number);
      moves_.push_back({{storage, Way::kept, use}});
    } else {
      const double most = most_worth(storage, idle, uses[k + 1].first);
      if (most <= 0) continue;
      heap.push({most, number, -1});
      moves_.push_back({{storage, Way::dropped}, {storage, Way::dropped, use}});
    }
  }
}

// Moves of single storages that go wait with the most that they can be worth; the others with what they are.
void Descent::list_falls(const std::vector<Index>& scope, bool grouped, Heap& heap) {
  trial_.refresh();
  find_rewritten();
  find_crowded();
  moves_.clear();
  const Simulator& simulator = trial_.simulator();
  Move move;
  std::vector<std::int32_t> simulated;
  for (const Index storage : scope) {
    const bool kept = trial_.way(storage) == Way::kept;
    if (trial_.may_go(storage)) add_gaps(storage, heap, simulated);
    const Index next = simulator.next_use(storage);
    const Index back = next == kNever ? simulator.needed(storage) : next;
    const double most = kept ? most_worth(storage, simulator.near(storage), back) : 0.0;
    if (kept ? most <= 0 : trial_.way(storage) == Way::dropped && !rewritten_[storage]) continue;
    for (const Way way : kWays) {
      change_to(move, storage, way);
      if (move.empty()) continue;
      const auto k = static_cast<std::int32_t>(moves_.size());
      if (kept && way == Way::dropped) {
        heap.push({most, k, -1});
      } else {
        simulated.push_back(k);
      }
      moves_.push_back(move);
      move.clear();
    }
  }
  for (const std::int32_t k : simulated) {
    if (watch_.expired()) return;
    const double worth = value_of(trial_.after(moves_[k]));
    if (worth > 0) heap.push({worth, k, 0});
  }
  if (grouped) list_groups(heap);
}

void Descent::list_groups(Heap& heap) {
  Move move;
  for (const std::vector<Index>& group : groups_) {
    for (const Way way : {Way::dropped, Way::kept}) {
      move.clear();
      for (const Index storage : group) change_to(move, storage, way);
      if (move.size() < 2 || watch_.expired()) continue;
      const double worth = value_of(trial_.after(move));
      if (worth <= 0) continue;
      heap.push({worth, static_cast<std::int32_t>(moves_.size()), 0});
      moves_.push_back(move);
    }
  }
}

// What costs time now: made again, packed or swapped. It may stay, or take a cheaper way.
void Descent::list_returns(const std::vector<Index>& scope, bool grouped) {
  trial_.refresh();
  find_rewritten();
  moves_.clear();
  Move move;
  const Simulator& simulator = trial_.simulator();
  for (const Index storage : scope) {
    const Way now = trial_.way(storage);
    if (now == Way::dropped && rewritten_[storage] && trial_.may_go(storage)) {
      for (Index use = simulator.first_use(storage); use < simulator.first_use(storage + 1); ++use) {
        if (simulator.goes(use)) moves_.push_back({{storage, Way::kept, use}});
      }
    }
    if (now == Way::kept || (now == Way::dropped && !rewritten_[storage])) continue;
    for (const Way way : kWays) {
      change_to(move, storage, way);
      if (!move.empty()) moves_.push_back(move);
      move.clear();
    }
  }
  if (!grouped) return;
  for (const std::vector<Index>& group : groups_) {
    for (const Index storage : group) change_to(move, storage, Way::kept);
    if (move.size() > 1) moves_.push_back(move);
    move.clear();
  }
}

// Excess taken away for each second; negative where none is.
double Descent::value_of(const Worth& after) const {
  const double gain = trial_.worth().excess - after.excess;
  if (gain <= 0) return gain < 0 || after.seconds >= trial_.worth().seconds - kSame ? -1.0 : 0.0;
  return gain / std::max(after.seconds - trial_.worth().seconds, least_seconds_);
}

bool Descent::exhaust(Heap& heap) {
  bool moved = false;
  std::int64_t round = 0;
  while (!heap.empty() && trial_.worth().excess > 0 && !watch_.expired()) {
    Candidate candidate = heap.top();
    heap.pop();
    const Move& move = moves_[candidate.move];
    if (candidate.round != round) {
      candidate.worth = value_of(trial_.after(move));
      candidate.round = round;
      if (candidate.worth <= 0) continue;
      if (!heap.empty() && candidate < heap.top()) {
        heap.push(candidate);
        continue;
      }
    }
    trial_.make(move);
    ++round;
    moved = true;
  }
  return moved;
}

bool Descent::fall(const std::vector<Index>& scope, bool grouped) {
  bool moved = true;
  while (moved && trial_.worth().excess > 0 && !watch_.expired()) {
    Heap heap;
    list_falls(scope, grouped, heap);
    moved = exhaust(heap);
  }
  return trial_.worth().excess == 0;
}

void Descent::rise(const std::vector<Index>& scope, bool grouped) {
  bool moved = true;
  while (moved && !watch_.expired()) {
    moved = false;
    struct Return {
      double worth;  // seconds saved for each byte and position
      std::int32_t move;
    };
    std::vector<Return> returns;
    list_returns(scope, grouped);
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(moves_.size()) && !watch_.expired(); ++k) {
      const Worth worth = trial_.after(moves_[k]);
      const double saved = trial_.worth().seconds - worth.seconds;
      if (worth.excess == 0 && saved > kSame) {
        returns.push_back({saved / std::max(worth.area - trial_.worth().area, 1.0), k});
      }
    }
    std::stable_sort(returns.begin(), returns.end(),
                     [](const Return& one, const Return& other) { return one.worth > other.worth; });
    Move undo;
    for (const Return& candidate : returns) {
      if (watch_.expired()) break;
      const Worth before = trial_.worth();
      trial_.make(moves_[candidate.move], &undo);
      if (trial_.worth().excess > 0 || trial_.worth().seconds >= before.seconds - kSame) {
        trial_.make(undo);
      } else {
        moved = true;
      }
    }
  }
}

}  // namespace stowplan::scheduling
