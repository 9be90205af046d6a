#include "floating_pieces.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace stowplan::packing::exact {
namespace {

constexpr Units kOpen = -1;

class PieceSearch {
 public:
  PieceSearch(const Model& model, Units capacity, std::uint64_t node_limit, Budget& budget)
      : model_(model), capacity_(capacity), nodes_left_(node_limit), budget_(budget), offset_(model.n, kOpen) {}

  Answer run() {
    for (const Units load : model_.load) {
      if (load > capacity_) return Answer::no;
    }
    for (std::int32_t i = 0; i < model_.n; ++i) {
      if (model_.fixed[i] < 0) continue;
      if (model_.fixed[i] + model_.size[i] > capacity_ || !is_free(i, model_.fixed[i])) return Answer::no;
      offset_[i] = model_.fixed[i];
    }
    const bool found = solve();
    return found ? Answer::yes : stopped_ ? Answer::interrupted : Answer::no;
  }

  const std::vector<Units>& offsets() const { return offset_; }

 private:
  template <typename Visit>
  void meetings(std::int32_t i, Visit visit) const {
    for (const auto& [k, above, below] : model_.conflicts_of(i)) {
      if (offset_[k] == kOpen) continue;
      for (const Piece& mine : model_.pieces_of(i)) {
        for (const Piece& other : model_.pieces_of(k)) {
          ++looks_;
          if (mine.first <= other.last && other.first <= mine.last) visit(mine, other, offset_[k]);
        }
      }
    }
  }

  bool is_free(std::int32_t i, Units x) const {
    bool free = true;
    meetings(i, [&](const Piece& mine, const Piece& other, Units y) {
      free &= x + mine.upper <= y + other.lower || y + other.upper <= x + mine.lower;
    });
    return free;
  }

  // Where the block would rest, in rising order.
  std::vector<Units> points(std::int32_t i) const {
    std::vector<Units> found = {0};
    meetings(i, [&](const Piece& mine, const Piece& other, Units y) {
      const Units x = y + other.upper - mine.lower;
      if (x > 0) found.push_back(align_up(x, model_.alignment[i]));
    });
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    const auto bad = [&](Units x) { return x + model_.size[i] > capacity_ || !is_free(i, x); };
    found.erase(std::remove_if(found.begin(), found.end(), bad), found.end());
    return found;
  }

  bool solve() {
    std::vector<std::pair<std::int32_t, Units>> ruled_out_here;
    const bool solved = [&] {
      while (true) {
        if (nodes_left_ == 0 || (++budget_.nodes % 256 == 0 && budget_.check())) stopped_ = true;
        if (stopped_) return false;
        --nodes_left_;
        std::int32_t chosen = -1;
        Units at = 0;
        bool open = false;
        for (std::int32_t i = 0; i < model_.n; ++i) {
          if (offset_[i] != kOpen) continue;
          open = true;
          const std::vector<Units> candidates = points(i);
          if (budget_.spend(std::exchange(looks_, 0))) {
            stopped_ = true;
            return false;
          }
          if (candidates.empty()) return false;
          for (const Units x : candidates) {
            if (ruled_out_.count({i, x}) != 0) continue;
            if (chosen < 0 || x < at || (x == at && model_.area[i] > model_.area[chosen])) {
              chosen = i;
              at = x;
            }
            break;
          }
        }
        if (!open) return true;
        if (chosen < 0) return false;
        offset_[chosen] = at;
        if (solve()) return true;
        offset_[chosen] = kOpen;
        if (stopped_) return false;
        ruled_out_.emplace(chosen, at);
        ruled_out_here.emplace_back(chosen, at);
      }
    }();
    for (const auto& point : ruled_out_here) ruled_out_.erase(point);
    return solved;
  }

  const Model& model_;
  const Units capacity_;
  std::uint64_t nodes_left_;
  mutable std::uint64_t looks_ = 0;  // at pairs of pieces, not yet charged to the budget
  Budget& budget_;
  bool stopped_ = false;
  std::vector<Units> offset_;
  std::set<std::pair<std::int32_t, Units>> ruled_out_;
};

}  // namespace

Answer solve_pieces(const Model& model, Units capacity, std::uint64_t node_limit, Budget& budget,
                    std::vector<Units>& offsets) {
  PieceSearch search(model, capacity, node_limit, budget);
  const Answer answer = search.run();
  if (answer == Answer::yes) offsets = search.offsets();
  return answer;
}

}  // namespace stowplan::packing::exact
