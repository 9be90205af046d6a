// The decision behind the exact solver: do the blocks of a model fit below a capacity?
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "control.hpp"
#include "model.hpp"

namespace stowplan::packing::exact {

enum class Answer { yes, no, interrupted };

struct Budget {
  explicit Budget(const Control& control) : watch(control), most_nodes_(control.effort) {}

  const Stopwatch watch;
  std::int64_t nodes = 0;  // visited so far, over all runs
  bool over = false;

  // Whether to stop; looks at the clock.
  bool check() {
    spent_ = 0;
    over |= watch.expired() || (most_nodes_ > 0 && nodes >= most_nodes_);
    return over;
  }

  // The same after `work` elementary steps; looks at the clock now and then. A node of a large problem takes long.
  bool spend(std::uint64_t work) {
    spent_ += work;
    return spent_ >= kSeldom ? check() : over;
  }

 private:
  static constexpr std::uint64_t kSeldom = 1'000'000;

  std::int64_t most_nodes_;  // 0: no limit
  std::uint64_t spent_ = 0;  // since the last check
};

class Search {
 public:
  explicit Search(const Model& model);

  // Places every block below `capacity`, visiting at most `node_limit` nodes. Among blocks at the same offset it
  // prefers (`by_total`) those in the section with the most to come when the problem last fell apart, then those of low
  // `rank`. `no` is a proof unless the model has floating pieces.
  Answer run(Units capacity, const std::vector<std::int32_t>& rank, bool by_total, std::uint64_t node_limit,
             Budget& budget);

  const std::vector<Units>& offsets() const { return offset_; }  // after `yes`

 private:
  // An open block was lifted from `offset` by the placement of `by`. Linked into the history of the block.
  struct Change {
    std::int32_t block;
    Units offset;
    std::int32_t by;
    std::int32_t previous;
    Units too_high;  // from here on the block could not lie below `by`
  };
  struct Exclusion {
    std::int32_t block;
    Units excluded_at;
  };
  struct Group {
    std::size_t begin;
    std::size_t end;
  };

  bool solve(std::size_t begin, std::size_t end);
  bool solve_rest(std::size_t begin, std::size_t end, std::int32_t placed);
  bool infer(std::size_t begin, std::size_t end);
  bool place(std::int32_t block);
  void lift(std::int32_t block);
  void rewind(std::size_t changes, std::size_t exclusions);

  // Conflicts: see conflict.cpp.
  void add(std::int32_t block) { conflict_[block >> 6] |= std::uint64_t{1} << (block & 63); }
  bool has(std::int32_t block) const { return conflict_[block >> 6] >> (block & 63) & 1; }
  void start_conflict();
  void blame_every_decision() { std::fill(conflict_.begin(), conflict_.end(), ~std::uint64_t{0}); }
  void explain(std::int32_t block, Units least);
  void explain_least(std::int32_t block, Units least);
  void explain_room(std::int32_t block);
  void explain_raised(std::int32_t block, Units least);
  void explain_section(std::size_t begin, std::size_t end, std::int32_t section, Units least);
  void explain_state(std::size_t begin, std::size_t end);
  void resolve(std::size_t saved, std::size_t exclusions);
  void add_placed_neighbours(std::int32_t block);

  bool is_blocked(std::int32_t i) const { return excluded_at_[i] == offset_[i] || waiting_[i]; }

  const Model& model_;
  Units capacity_ = 0;
  const std::int32_t* rank_ = nullptr;
  bool by_total_ = false;
  Budget* budget_ = nullptr;
  std::uint64_t nodes_left_ = 0;
  std::uint64_t work_per_block_ = 1;  // of a node: its pieces' sections, on average
  bool stopped_ = false;

  std::vector<Units> offset_;       // of a placed block; else the lowest that the placed ones allow
  std::vector<Units> excluded_at_;  // the block was tried at this offset: it has to rise above it
  std::vector<char> placed_;
  std::vector<char> waiting_;       // for its twin to be placed first
  std::vector<Units> rest_;         // per section: the load of the blocks not placed
  std::vector<Units> total_;        // per block: the largest rest_ over its sections, when last decomposed
  std::vector<std::int32_t> open_;  // stack of lists of blocks not placed, by first section
  std::vector<Change> changes_;
  std::vector<std::int32_t> last_change_;  // per block, into changes_
  std::vector<Exclusion> exclusions_;

  std::int32_t candidate_ = -1;  // what infer() found
  std::uint64_t key_ = 0;
  std::vector<Units> lowest_;   // scratch, per block: the lowest offset that it can still have
  std::vector<Units> floor_;    // scratch, per section: the lowest offset that an open block can have
  std::vector<Units> support_;  // scratch, per section: the lowest end that an open block can have
  std::vector<std::int32_t> blocked_;

  std::vector<std::uint64_t> states_;   // stack: keys of the states entered and not left
  std::vector<std::uint64_t> refuted_;  // keys of refuted states, each in its place by the remainder

  std::size_t words_;
  std::vector<std::uint64_t> neighbours_;  // a bit set per block
  std::vector<std::uint64_t> placed_set_;
  std::vector<std::uint64_t> conflict_;  // the decisions that made the last refuted node fail
  std::vector<std::uint64_t> saved_;     // stack of conflicts
  std::vector<Units> explained_;         // per block, within one explanation
  int depth_ = 0;                        // of explain_raised
  int steps_ = 0;                        // of explain_raised, within one explanation
};

}  // namespace stowplan::packing::exact
