// The live bytes of a step under a schedule: what a solver asks again and again.
//
// tests/scheduling/reference/simulator.py is the specification; scheduling/schedule.py says what the ways mean.
// Positions are those of the schedule's order; p is "before" q where p < q.
//
//   position      start          near                 touch, next use            needed
//   KEPT            |--------------|------------------------|----------------------|
//   DROPPED         |--------------|                 (rerun)|---| drop   |---| last
//   PACKED          |--------------|- - - few bytes - - - - |----------------------|
//   SWAPPED         |--------------|---|             |------|----------------------|
//                                     out           into
//   ON_DEMAND       |--------------|                        |----------------------|
//
// A DROPPED storage goes after each of its *drops*: the last use in the phase that wrote it, and the uses that the
// schedule names. The near use is the first of them.
//
// The first pass visits only *watched* positions, at which an operator uses a DROPPED storage after its near use. It
// finds the *reruns* there, and with them `needed`: how long each other storage stays. The second pass adds the bytes
// of these intervals at their ends, runs through the positions once, and looks into a position's reruns only where
// there are some; what it finds is relative to the bytes alive before, and is kept until something changes that it saw.
//
// Cost, for n operators, m values, u reads and writes, and r reruns of k reads and writes each; in brackets measured
// processor time for n = 3,000, m = 4,000, u = 11,000:
//   set_order    O(n + m + u)                                                                     (70 us)
//   set_way      O(readers of the storage)
//   evaluate     O(n + m), straight loops                                                         (14 us)
//                and O(r k log r) for the reruns, after set_way only for those from the first
//                position on at which an operator or a rerun reads or writes a changed storage    (0.14 us a rerun)
// It is exactly the same as evaluating from the beginning. To undo a change is to change it back. Nothing is allocated
// once the vectors have grown to what the largest evaluation needs. One object serves one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "../lists.hpp"

namespace stowplan::scheduling {

using Bytes = std::int64_t;
using Index = std::int32_t;  // an operator, a value, a storage (its value's number), or a position

constexpr Index kNever = std::numeric_limits<Index>::max();  // a position after all others

enum class Way : std::int8_t { kept = 0, dropped = 1, packed = 2, swapped = 3, on_demand = 4 };

// Compressed rows: row i is index[first[i]] to index[first[i + 1]], exclusive.
struct Rows {
  const std::int64_t* first;
  const std::int64_t* index;
};

// The columns of a StepGraph of n operators and m values that is valid; looked at while a Simulator is made.
struct Graph {
  std::int64_t n, m;
  Rows reads, writes;
  const std::int64_t* phase;      // (n,)
  const std::int64_t* workspace;  // (n,) bytes
  const double* seconds;          // (n,)
  const std::int64_t* size;       // (m,) bytes of the storage; only that of the value that has it counts
  const std::int64_t* storage;    // (m,) the value that has the storage
  const std::int64_t* held;       // (m,) operator, or -1
  const std::int64_t* packed;     // (m,) bytes
  const std::uint8_t* resident;   // (m,)
  const std::uint8_t* kept;       // (m,)
};

struct Rates {
  double swap = 0.8 * 1073741824.0;  // bytes a second
  double pack = 1.0 * 1073741824.0;
};

struct Score {
  Bytes peak = 0;        // without the resident storages
  Index place = -1;      // position of the first moment at which the peak is; -1 if nothing is ever alive
  Index rerun = -1;      // the operator that runs again at that moment, or -1
  double seconds = 0.0;  // of reruns, packing, unpacking and stalls

  bool operator==(const Score& other) const {
    return peak == other.peak && place == other.place && rerun == other.rerun && seconds == other.seconds;
  }
};

// The reruns before one operator: operators()[first] to operators()[last], exclusive, of Simulator::rerun_operators.
struct Reruns {
  Index position, first, last, fates;
  double seconds;     // of all reruns up to here
  Bytes fullest = 0;  // bytes at the fullest moment, above those alive before
  Index at = -1;      // the operator of that moment
  Bytes gain = 0;     // bytes that stay
};

class Simulator {
 public:
  // Begins with the recorded order, every storage KEPT. The graph's columns are copied.
  explicit Simulator(const Graph& graph, Rates rates = {});
  Simulator(const Simulator&) = delete;  // its notes have addresses of its columns
  Simulator& operator=(const Simulator&) = delete;

  // An order of all operators, (n,), each after what it depends on.
  void set_order(const std::int64_t* order);
  // `storage`: the value that has it. The way must be one of `choices` in scheduling/schedule.py. O(readers).
  void set_way(Index storage, Way way);
  // Whether a storage, where it is DROPPED, goes after a use: `first_use(storage)` and so on, of its users ascending.
  void set_goes(Index storage, Index use, bool goes);
  void set_goes_after(Index storage, Index op);

  const Score& evaluate();

  // Of the order and the ways set.
  Index operators() const { return n_; }
  Index values() const { return m_; }
  Index order(Index position) const { return order_[position]; }
  Index position(Index op) const { return position_[op]; }
  Lists::Range makes(Index op) const { return makes_[op]; }  // storages of which it writes a value, ascending
  double seconds(Index op) const { return seconds_[op]; }
  Way way(Index storage) const { return way_[storage]; }
  Bytes size(Index storage) const { return size_[storage]; }      // 0 if resident
  Index start(Index storage) const { return start_[storage]; }    // first write; kNever: none
  Index near(Index storage) const { return near_[storage]; }      // after which it may be gone at first; -1: none
  Index last(Index storage) const { return last_[storage]; }      // last use by an operator; n: among the results
  Index next_use(Index storage) const { return next_[storage]; }  // first one after near; kNever: none
  Index first_use(Index storage) const { return users_.first(storage); }
  Index user(Index use) const { return users_.numbers()[use]; }
  bool goes(Index use) const { return goes_[use] != 0; }
  // Uses of a storage by position: pairs of a position and the use.
  const std::pair<Index, Index>* placed(Index storage) const { return placed_.data() + first_use(storage); }
  Index use_count(Index storage) const { return users_[storage].size(); }

  // Of the last evaluation.
  const std::vector<Bytes>& live() const { return live_; }       // (n,) at each position's fullest moment
  const std::vector<Reruns>& reruns() const { return reruns_; }  // by position
  const std::vector<Index>& rerun_operators() const { return again_; }
  Index needed(Index storage) const { return needed_[storage]; }  // last use by an operator or a rerun
  // Of a storage that is SWAPPED or ON_DEMAND, as of the last evaluation: before which positions it leaves and is back;
  // kNever: it stays.
  Index leaves(Index storage) const { return out_[storage]; }
  Index returns(Index storage) const { return into_[storage]; }
  Index next_need(Index storage) const;  // first one after near; kNever: none
  // For each value the position after which it goes for the last time; -1: it never was there, or stays. What a rerun
  // writes of a storage that is not DROPPED is a copy, and counts not. O(m + r k).
  void released(std::vector<Index>& out) const;

  // Whether what is kept between evaluations agrees with itself; aborts if not. Called where STOWPLAN_DEBUG is defined.
  void check_invariants() const;

 private:
  struct Event {
    Index storage, position;
  };
  struct Note {  // a position that the first pass has written
    Index *place, before;
  };
  struct Span {  // of a storage
    Index phase, start, near, last, held;
  };

  void find_uses();
  void find_drops(Index storage);
  void lay_out_order();
  void watch(Index storage, Index more);

  // First pass.
  void forget_from(Index position);
  void find_reruns(Index position);
  Index drop_from(Index storage, Index position) const;
  bool is_there(Index value, Index position) const;
  bool is_storage_there(Index storage, Index position) const;
  void make_again(Index value, Index position, bool by_itself);
  void note(Index& place, Index position) {
    noted_.push_back({&place, place});
    place = position;
  }
  void need(Index storage, Index position);
  void note_rerun(Index op, Index position);

  // Second pass.
  void move(std::vector<Bytes>& changes, Index position, Bytes bytes);
  void lay_out();
  void move_end(Index storage, Index end);
  void lay_out_packed(Index storage);
  void lay_out_swapped();
  bool is_swapped(Index storage) const { return way_[storage] == Way::swapped || way_[storage] == Way::on_demand; }
  void evict(Index storage, Index out, Index into);
  void return_early();
  void lay_out_regained();
  void add_up();
  void look_into(Reruns& reruns);
  Bytes write_again(Index op, Index position, const std::uint8_t* fates, Bytes& live, Bytes& gain);
  void let_go(Index value, Bytes& live);
  bool is_present(Index storage, Index position) const;
  void look_from(Index position) { look_from_ = position < look_from_ ? position : look_from_; }

  // The graph.
  Index n_, m_;
  Rates rates_;
  Lists reads_, writes_;  // values of each operator, ascending, each once
  Lists uses_, makes_;    // storages of the values that an operator reads or writes, or writes
  Lists users_;           // operators that read or write a storage
  std::vector<Index> held_values_;
  std::vector<Index> storages_;                         // the values that have one
  std::vector<Index> phase_, storage_, held_, writer_;  // writer_: the first of a value; -1: none
  std::vector<Index> first_phase_;                      // of each storage: its first writer's; -1: none
  std::vector<Bytes> workspace_, size_, packed_;
  std::vector<double> seconds_;
  std::vector<std::uint8_t> result_;  // of each storage: alive at the end

  // The order; of each storage.
  std::vector<Index> order_, position_, start_, near_, last_, next_;
  std::vector<Span> spans_;
  std::vector<std::pair<Index, Index>> placed_;  // of each use the position, and it; by storage and position
  std::vector<std::vector<Index>> drops_;        // positions, ascending
  std::vector<double> clock_;                    // seconds before each position, (n + 1,)
  std::vector<Index> watched_;  // DROPPED storages that the operator at a position uses after their near use

  // The ways, and from where on the two passes are to be made again.
  std::vector<Way> way_;
  std::vector<std::uint8_t> goes_;  // of each use
  Index rerun_from_ = 0, look_from_ = 0;

  // First pass. The logs ascend by position: it can be taken back to any.
  std::vector<Reruns> reruns_;
  std::vector<Index> again_;
  std::vector<std::uint8_t> fates_;              // of what reruns write: whether the value is there, and the storage
  std::vector<Index> needed_, touched_, asked_;  // of each storage; the latter two: first after near, by a rerun
  std::vector<Index> made_, begun_;              // of each value, storage: where it was last made to stay after near
  std::vector<Note> noted_;
  std::vector<Event> begun_log_, own_log_, rewritten_log_;
  std::vector<std::uint32_t> mark_;  // of each operator
  std::uint32_t epoch_ = 0;
  std::vector<Index> stack_;

  // Second pass: changes of the live bytes at the beginning of a position, and by its operator; (n + 2,).
  std::vector<Bytes> before_, by_;
  std::vector<std::pair<Bytes*, Bytes>> moved_;  // changes to take back before the next evaluation
  std::vector<Index> end_;                       // of each storage: where before_ has it end
  std::vector<Index> unpacked_, out_, into_, returned_;
  std::vector<std::pair<Index, Index>> transfers_;
  std::vector<Index> left_, temporaries_;  // readers to come of a value; temporary values of a storage
  std::vector<std::uint8_t> temporary_;
  std::vector<std::uint32_t> stays_, opened_;  // of each storage: the look in which it was regained, unpacked
  std::uint32_t look_ = 0;
  std::vector<Bytes> live_;
  Bytes packing_ = 0;
  double stalls_ = 0.0;
  Score score_;
};

}  // namespace stowplan::scheduling
