// The schedule that a descent is at: tried moves, taken back or kept.
//
// A schedule is worth its extra seconds and its *excess*: the bytes above the budget, summed over all positions. The
// excess falls with every value that goes while too much is alive, even where the peak itself does not, since others
// are as high; at 0 the budget is kept.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../simulator/simulator.hpp"

namespace stowplan::scheduling {

// One change: a storage's way, or whether it goes after one use.
struct Change {
  Index storage;
  Way way;
  Index use = -1;
};

struct Ways {
  std::vector<Way> of;             // each storage
  std::vector<std::uint8_t> goes;  // after each use
};

using Move = std::vector<Change>;

struct Worth {
  double excess = 0.0;  // bytes x positions
  double seconds = 0.0;
  Bytes peak = 0;
  double area = 0.0;  // bytes x positions in all
};

class Trial {
 public:
  static constexpr std::uint8_t kGoes = 128;

  // `ways`, (m,): the bits of a value that has a storage say which ways it may take; kGoes says that it may go after
  // any use.
  Trial(Simulator& simulator, const std::uint8_t* ways, Bytes budget);

  Bytes budget() const { return budget_; }
  bool may(Index storage, Way way) const { return (ways_[storage] >> static_cast<int>(way) & 1) != 0; }
  bool may_go(Index storage) const { return (ways_[storage] & kGoes) != 0; }
  Way way(Index storage) const { return simulator_.way(storage); }
  const Simulator& simulator() const { return simulator_; }

  // Of the schedule as it stands.
  const Worth& worth() const { return worth_; }
  // After this the simulator's details are those of the schedule as it stands, not of one that was looked at.
  void refresh() { simulator_.evaluate(); }
  // What it would be worth after a move; the schedule stays as it is.
  Worth after(const Move& move);
  // Make a move, and write what undoes it.
  void make(const Move& move, Move* undo = nullptr);
  void set_order(const std::vector<std::int64_t>& order);
  // The order, (n,), and the ways.
  std::vector<std::int64_t> order() const;
  Ways all_ways() const;
  void set_ways(const Ways& ways);

  std::int64_t evaluations() const { return evaluations_; }

 private:
  Worth measure();
  void apply(const Move& move, Move* undo);
  void apply(const Change& change);

  Simulator& simulator_;
  const std::uint8_t* ways_;
  Bytes budget_;
  Worth worth_;
  Move undo_;
  std::int64_t evaluations_ = 0;
};

}  // namespace stowplan::scheduling
