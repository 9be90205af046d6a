// What a search for an order sees of a step graph: n operators, which of them come before which, and storages.
//
// A storage becomes alive when the first of its *starts* begins (of a plain value: its writer), and goes when the
// last of its *ends* is done (its last readers):
//
//     bytes |      +-----------+            alive while an operator that starts it, or anything after, has run,
//           |      |           |            and one that ends it has not:
//           |------+           +------
//           +----start---------end---->     [a start has run] + [an end has not] - 1
//
// The bytes alive are so a function of the set D of operators that have run, and a submodular one: whatever an
// operator adds to a set, it adds no more to a larger set. All bounds and safe moves here rest on that.
//
// A step graph reversed is one again: the ends are the starts, and the peak of an order is that of the order
// reversed.
#pragma once

#include <cstdint>
#include <vector>

#include "../lists.hpp"

namespace stowplan::ordering {

using Bytes = std::int64_t;
using Op = std::int32_t;   // an operator's number
using Row = std::int32_t;  // a storage's number

struct Storage {
  Bytes size = 0;
  bool from_start = false;  // alive before any operator runs; then it has no starts
  bool to_end = false;      // alive when all have run; then it has no ends
  std::vector<Op> starts, ends;
};

// A graph as it is made and changed; `Graph` is what is searched.
struct Draft {
  // Of each operator: bytes of its fullest moment beside what is alive before and what it starts. May be negative.
  std::vector<Bytes> extra;
  std::vector<std::vector<Op>> before;
  std::vector<Storage> storages;
};

// Which operators come before each operator, through any number of others: n * n bits.
class Reach {
 public:
  // The operators are numbered so that each comes after those before it.
  explicit Reach(const std::vector<std::vector<Op>>& before);
  bool precedes(Op a, Op b) const { return bit(before_, b, a); }

 private:
  bool bit(const std::vector<std::uint64_t>& bits, Op row, Op column) const {
    return bits[static_cast<std::size_t>(row) * words_ + static_cast<std::size_t>(column >> 6)] >> (column & 63) & 1;
  }
  std::size_t words_;
  std::vector<std::uint64_t> before_;
};

struct Graph {
  // Leaves out what decides nothing: storages of 0 bytes, dependencies and uses that follow from others. A storage of
  // one operator alone becomes part of its extra bytes, and storages with the same starts and ends become one.
  explicit Graph(Draft draft);

  std::int32_t count() const { return static_cast<std::int32_t>(extra.size()); }
  std::int32_t storages() const { return static_cast<std::int32_t>(size.size()); }
  Draft draft() const;
  Graph reversed() const;

  std::vector<Bytes> extra;
  Lists before, after;      // of each operator, the direct ones
  std::vector<Bytes> size;  // of each storage
  std::vector<char> from_start, to_end;
  Lists starts, ends;      // of each storage
  Lists starting, ending;  // of each operator
};

// Above so many operators n * n bits are too many: nothing that follows from others is left out, and nothing is
// bounded.
constexpr std::int32_t kMostReach = 12'000;

// The peak of an order of all operators.
Bytes peak_of(const Graph& graph, const std::vector<Op>& order);

}  // namespace stowplan::ordering
