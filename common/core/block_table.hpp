// Live blocks by a small integer: a vector of records with a free list. O(1), and no allocation once it has grown to
// the largest number of blocks that were ever alive at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

namespace stowplan {

using BlockId = std::uint32_t;
constexpr BlockId kNoBlock = UINT32_MAX;

template <class Record>
class BlockTable {
 public:
  static_assert(std::is_trivially_destructible_v<Record>, "a record is overwritten as it is");

  // A new record, to be filled in where it is: a copy of one that was just written waits for the writing.
  BlockId insert() {
    if (free_.empty()) {
      if (records_.size() == records_.capacity()) records_.reserve(std::max<std::size_t>(16, 2 * records_.size()));
      free_.reserve(records_.capacity());  // so that erase() cannot fail
      records_.emplace_back();
      ++live_;
      return static_cast<BlockId>(records_.size() - 1);
    }
    ++live_;
    const BlockId id = free_.back();
    free_.pop_back();
    new (&records_[id]) Record;
    return id;
  }

  void erase(BlockId id) {
    --live_;
    free_.push_back(id);
  }

  Record& operator[](BlockId id) { return records_[id]; }
  const Record& operator[](BlockId id) const { return records_[id]; }
  std::size_t live() const { return live_; }
  std::size_t extent() const { return records_.size(); }  // every id is below it

 private:
  std::vector<Record> records_;
  std::vector<BlockId> free_;
  std::size_t live_ = 0;
};

}  // namespace stowplan
