// The set of operators with the fewest bytes alive, by a minimum cut.
//
// Given operators that have run, others that have not, and between them *free* ones, which of the free ones should
// have run, closed under what comes before, so that the fewest bytes are alive? Bytes alive are a sum over storages
// of [a start has run] + [an end has not] - 1, so the answer is a cut (project selection: Picard, Management Science
// 22(11), 1976):
//
//     source = has run                              an infinite edge: if this has run, so has that
//       op --inf--> what comes before it
//       start --inf--> (begun) --size--> (over) --inf--> end          cut where begun and not over
//     target = has not run
//
// Maximum flow by Dinic's algorithm over the free operators and what they start and end.
#pragma once

#include <cstddef>
#include <vector>

#include "graph.hpp"

namespace stowplan::ordering {

enum class Side : char { kOut, kFree, kIn };  // has not run, may have, has run

class LowestSet {
 public:
  explicit LowestSet(const Graph& graph);

  // The least change of the bytes alive, 0 or below, by running some of the free operators; `free` lists those whose
  // side is kFree, each after those before it. Storages that `left_out` starts do not count (-1: none).
  Bytes change(const std::vector<Op>& free, const std::vector<Side>& side, Op left_out = -1);
  // Of the last call: the operators that do so, the largest such set, in the order given.
  std::vector<Op> chosen(const std::vector<Op>& free) const;

 private:
  struct Edge {
    std::int32_t to;
    std::int32_t next;
    Bytes capacity;
  };
  static constexpr std::int32_t kSource = 0, kTarget = 1;

  std::int32_t add_node();
  void add_edge(std::int32_t from, std::int32_t to, Bytes capacity);
  void add_storage(Row s, const std::vector<Side>& side);
  Bytes flow();
  bool level();
  Bytes push(std::int32_t node, Bytes most);
  std::vector<char> reaching_target() const;

  const Graph& graph_;
  std::vector<std::int32_t> node_;  // of each free operator
  std::vector<char> seen_;          // storages
  std::vector<Row> rows_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> first_, level_, next_;
  Bytes base_ = 0;  // of the storages looked at, alive while no free operator has run
};

}  // namespace stowplan::ordering
