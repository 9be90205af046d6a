#include "trial.hpp"

namespace stowplan::scheduling {

Trial::Trial(Simulator& simulator, const std::uint8_t* ways, Bytes budget)
    : simulator_(simulator), ways_(ways), budget_(budget) {
  worth_ = measure();
}

Worth Trial::measure() {
  ++evaluations_;
  const Score& score = simulator_.evaluate();
  Worth worth;
  worth.seconds = score.seconds;
  worth.peak = score.peak;
  Bytes above = 0, all = 0;  // a terabyte at each of eight million positions still fits
  for (const Bytes live : simulator_.live()) {
    above += live > budget_ ? live - budget_ : 0;
    all += live;
  }
  worth.excess = static_cast<double>(above);
  worth.area = static_cast<double>(all);
  return worth;
}

void Trial::apply(const Move& move, Move* undo) {
  if (undo != nullptr) undo->clear();
  for (const Change& change : move) {
    Way before = simulator_.way(change.storage);
    if (change.use >= 0) before = simulator_.goes(change.use) ? Way::dropped : Way::kept;
    if (before == change.way) continue;
    if (undo != nullptr) undo->push_back({change.storage, before, change.use});
    apply(change);
  }
}

void Trial::apply(const Change& change) {
  if (change.use < 0) {
    simulator_.set_way(change.storage, change.way);
  } else {
    simulator_.set_goes(change.storage, change.use, change.way == Way::dropped);
  }
}

Worth Trial::after(const Move& move) {
  apply(move, &undo_);
  const Worth found = measure();
  for (const Change& change : undo_) apply(change);
  return found;
}

void Trial::make(const Move& move, Move* undo) {
  apply(move, undo);
  worth_ = measure();
}

void Trial::set_order(const std::vector<std::int64_t>& order) {
  simulator_.set_order(order.data());
  worth_ = measure();
}

std::vector<std::int64_t> Trial::order() const {
  std::vector<std::int64_t> found(static_cast<std::size_t>(simulator_.operators()));
  for (Index p = 0; p < simulator_.operators(); ++p) found[p] = simulator_.order(p);
  return found;
}

Ways Trial::all_ways() const {
  Ways found;
  for (Index s = 0; s < simulator_.values(); ++s) found.of.push_back(simulator_.way(s));
  for (Index use = 0; use < simulator_.first_use(simulator_.values()); ++use) {
    found.goes.push_back(simulator_.goes(use));
  }
  return found;
}

void Trial::set_ways(const Ways& ways) {
  for (Index s = 0; s < simulator_.values(); ++s) {
    if (ways_[s] != 0) simulator_.set_way(s, ways.of[s]);
    if (!may_go(s)) continue;
    for (Index use = simulator_.first_use(s); use < simulator_.first_use(s + 1); ++use) {
      simulator_.set_goes(s, use, ways.goes[use] != 0);
    }
  }
  worth_ = measure();
}

}  // namespace stowplan::scheduling
