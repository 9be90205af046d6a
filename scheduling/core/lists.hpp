// Lists of numbers, of different lengths, in one: compressed rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace stowplan {

class Lists {
 public:
  struct Range {
    const std::int32_t* first;
    const std::int32_t* last;
    const std::int32_t* begin() const { return first; }
    const std::int32_t* end() const { return last; }
    std::int32_t size() const { return static_cast<std::int32_t>(last - first); }
    std::int32_t front() const { return *first; }
  };

  Lists() : first_{0} {}
  explicit Lists(const std::vector<std::vector<std::int32_t>>& lists) : first_{0} {
    for (const auto& list : lists) {
      index_.insert(index_.end(), list.begin(), list.end());
      first_.push_back(static_cast<std::int32_t>(index_.size()));
    }
  }
  // Of `count` lists: which of the rows holds each number, ascending.
  Lists transposed(std::int32_t count) const {
    Lists result;
    result.first_.assign(static_cast<std::size_t>(count) + 1, 0);
    for (const std::int32_t number : index_) ++result.first_[number + 1];
    std::partial_sum(result.first_.begin(), result.first_.end(), result.first_.begin());
    result.index_.resize(index_.size());
    std::vector<std::int32_t> next(result.first_.begin(), result.first_.end() - 1);
    for (std::int32_t row = 0; row < size(); ++row) {
      for (const std::int32_t number : (*this)[row]) result.index_[next[number]++] = row;
    }
    return result;
  }
  std::vector<std::vector<std::int32_t>> copy() const {
    std::vector<std::vector<std::int32_t>> lists;
    for (std::int32_t row = 0; row < size(); ++row) lists.emplace_back((*this)[row].begin(), (*this)[row].end());
    return lists;
  }

  std::int32_t size() const { return static_cast<std::int32_t>(first_.size()) - 1; }
  Range operator[](std::int32_t row) const { return {index_.data() + first_[row], index_.data() + first_[row + 1]}; }
  // Where the row begins among the numbers of all rows; and these.
  std::int32_t first(std::int32_t row) const { return first_[row]; }
  const std::vector<std::int32_t>& numbers() const { return index_; }

 private:
  std::vector<std::int32_t> first_, index_;
};

}  // namespace stowplan
