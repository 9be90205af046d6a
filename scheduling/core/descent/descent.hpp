// Greedy descent to a budget by simulation, and the way back up.
//
//   excess |*                     fall: of all moves the one that takes most excess away for each second that it costs,
//          | *                    again and again, until nothing is above the budget. Moves that cost nothing come
//          first |   *
//          |        *
//          +----------*----- seconds
//                   *  rise: what went and need not have gone comes back: most seconds first
//                                for the bytes that it adds, summed over all positions
//
// A move changes the way of one storage, or of all that have one label (the many equal values of a recurrent network);
// in a step without phases also whether a storage goes after one of its uses. KEPT is a way like others: what is kept
// in the midst of a recomputation makes it shorter, and may lower the peak in it.
//
// Lazy evaluation (Minoux 1978): a move's worth, excess per second, mostly falls as others are made. So moves wait in a
// heap with the worth that they had; only the best of them is simulated again, and made if it still is the best. At
// first a storage that is kept waits with what it could be worth at most: its bytes at all positions above the budget
// at which it is idle, for the seconds of its own writer. When the heap is empty, all moves are listed again, until
// none helps. Each look costs one evaluation of the simulator.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "control.hpp"
#include "trial.hpp"

namespace stowplan::scheduling {

class Descent {
 public:
  // `groups`: storages that may change their way together. `total_seconds`: of the step as recorded.
  Descent(Trial& trial, const std::vector<std::vector<Index>>& groups, double total_seconds, const Stopwatch& watch);

  // Until nothing is above the budget, nothing helps, or the time is over. Returns whether the budget is kept.
  bool fall() { return fall(storages_, true); }
  // The same by groups alone: a few evaluations.
  bool fall_by_groups() { return fall({}, true); }
  // The same by these storages alone; with the groups or without them.
  bool fall(const std::vector<Index>& scope, bool grouped);
  // Take back what costs time and is not needed. Only where the budget is kept, and it still is afterwards.
  void rise() { rise(storages_, true); }
  void rise(const std::vector<Index>& scope, bool grouped);

  // Storages that have more than one way, as they are first written.
  const std::vector<Index>& storages() const { return storages_; }

 private:
  struct Candidate {
    double worth;
    std::int32_t move;
    std::int64_t round;  // in which the worth was found

    bool operator<(const Candidate& other) const {
      return worth != other.worth ? worth < other.worth : move > other.move;
    }
  };

  using Heap = std::priority_queue<Candidate>;

  double value_of(const Worth& after) const;
  void find_rewritten();
  void find_crowded();
  double most_worth(Index storage, Index idle, Index back) const;
  void change_to(Move& move, Index storage, Way way) const;
  void add_gaps(Index storage, Heap& heap, std::vector<std::int32_t>& simulated);
  void list_falls(const std::vector<Index>& scope, bool grouped, Heap& heap);
  void list_groups(Heap& heap);
  void list_returns(const std::vector<Index>& scope, bool grouped);
  bool exhaust(Heap& heap);

  Trial& trial_;
  const std::vector<std::vector<Index>>& groups_;
  const Stopwatch& watch_;
  std::vector<Index> storages_;
  std::vector<Move> moves_;
  std::vector<double> seconds_;          // of each storage: those of its writers
  std::vector<std::uint8_t> rewritten_;  // of each storage: an operator that runs again writes it
  std::vector<Index> crowded_;           // of each position: how many before it are above the budget
  double least_seconds_;
};

}  // namespace stowplan::scheduling
