#include "match.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace stowplan::planning {

namespace {

// Scores. A size counts in sixteenths of a doubling.
using Score = std::int32_t;
constexpr Score kPair = 160;    // of the same kind; off for each sixteenth that a size is beyond what the plan has seen
constexpr Score kOther = -213;  // of different kinds
constexpr Score kFarOff = 64;   // from here on a pair is as bad as one of different kinds
constexpr Score kSame = 8;      // on, for the plan's own size
constexpr Score kVote = 640;
constexpr Score kGap = 427;
constexpr Score kNever = -1'000'000'000;

enum State : std::uint8_t { pair, only_plan, only_step };

// The logarithm of size + 1, in sixteenths, linear in between.
Score level(std::int64_t size) {
  auto whole = static_cast<std::uint64_t>(size) + 1;
  Score doublings = 0;
  for (; whole >= 32; whole >>= 1) ++doublings;
  for (; whole < 16; whole <<= 1) --doublings;
  return 16 * doublings + static_cast<Score>(whole - 16);
}

std::vector<Score> levels(const std::vector<std::int64_t>& sizes) {
  std::vector<Score> result;
  for (const std::int64_t size : sizes) result.push_back(level(size));
  return result;
}

// The first of the largest.
inline int best(Score at_pair, Score at_plan, Score at_step) {
  const int one = at_plan > at_pair ? only_plan : pair;
  return at_step > std::max(at_pair, at_plan) ? only_step : one;
}

// For each cell the state in which the best path to it ends: as it is, or before only_plan, or before only_step.
class Table {
 public:
  explicit Table(const Band& band) : band_(band), row_(band.first.size() + 1) {
    for (std::size_t i = 0; i < band.first.size(); ++i) {
      row_[i + 1] = row_[i] + static_cast<std::size_t>(band.last[i] - band.first[i] + 1);
    }
    cells_.resize(row_.back());
  }
  std::uint8_t* row(std::size_t i) { return cells_.data() + row_[i]; }
  int before(State state, std::size_t i, std::size_t j) const {
    return (cells_.data() + row_[i])[j - static_cast<std::size_t>(band_.first[i])] >> (2 * state) & 3;
  }

 private:
  const Band& band_;
  std::vector<std::size_t> row_;
  std::vector<std::uint8_t> cells_;
};

// The scores of the cells of one row, by the state in which a path ends. Column 0 is at 1, for it has a left neighbour.
struct Row {
  std::vector<Score> at_pair, at_plan, at_step;

  explicit Row(std::size_t columns)
      : at_pair(columns + 2, kNever), at_plan(columns + 2, kNever), at_step(columns + 2, kNever) {}

  void forget(std::size_t begin, std::size_t end) {
    for (auto* scores : {&at_pair, &at_plan, &at_step}) {
      std::fill(scores->begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                scores->begin() + static_cast<std::ptrdiff_t>(end) + 1, kNever);
    }
  }

  // Completes columns [begin, end) from the two other states, and writes down what they come from.
  void close(std::size_t begin, std::size_t end, std::uint8_t* cells) {
    Score along = kNever;
    for (std::size_t j = begin + 1; j <= end; ++j) {
      at_step[j] = along;
      along = std::max(along, std::max(at_pair[j], at_plan[j]) - kGap);
    }
    const Score* p = at_pair.data() + begin + 1;
    const Score* u = at_plan.data() + begin + 1;
    const Score* s = at_step.data() + begin + 1;
    for (std::size_t j = 0; j < end - begin; ++j) {
      const int as_it_is = best(p[j], u[j], s[j]);
      const int before_plan = best(p[j] - kGap, u[j], s[j] - kGap);
      const int before_step = best(p[j] - kGap, u[j] - kGap, s[j]);
      cells[j] = static_cast<std::uint8_t>(as_it_is | before_plan << 2 | before_step << 4);
    }
  }
};

// The scores of all cells in the band, row by row, and the way back from the last one.
class Matching {
 public:
  Matching(const PlanRequests& plan, const StepRequests& step, const Band& band)
      : plan_(plan),
        band_(band),
        table_(band),
        least_(levels(plan.least)),
        most_(levels(plan.most)),
        asked_(levels(step.size)),
        size_(step.size.begin(), step.size.end()),
        kind_(step.kind.begin(), step.kind.end()),
        vote_(step.vote.begin(), step.vote.end()),
        score_(step.kind.size() + 1),
        above_(step.kind.size()),
        here_(step.kind.size()) {}

  std::vector<std::int64_t> run() {
    here_.at_pair[1] = 0;
    here_.close(0, end(0), table_.row(0));
    for (std::size_t i = 1; i <= plan_.kind.size(); ++i) fill(i);
    return way_back();
  }

 private:
  std::size_t begin(std::size_t i) const { return static_cast<std::size_t>(band_.first[i]); }
  std::size_t end(std::size_t i) const { return static_cast<std::size_t>(band_.last[i]) + 1; }

  void fill(std::size_t i) {
    const std::size_t begin = this->begin(i);
    const std::size_t end = this->end(i);
    const std::size_t from = std::max<std::size_t>(begin, 1);
    std::swap(above_, here_);
    // The row above has no cells there; the vectors have those of the row before it.
    if (begin == this->begin(i - 1) && begin > 0) above_.forget(begin - 1, begin);
    above_.forget(this->end(i - 1), end);
    score_pairs(i - 1, from - 1, end - 1);

    const Score* p = above_.at_pair.data();
    const Score* u = above_.at_plan.data();
    const Score* s = above_.at_step.data();
    here_.at_pair[begin + 1] = kNever;
    for (std::size_t j = from; j < end; ++j) {
      here_.at_pair[j + 1] = std::max(std::max(p[j], u[j]), s[j]) + score_[j - 1];
    }
    for (std::size_t j = begin; j < end; ++j) {
      here_.at_plan[j + 1] = std::max(std::max(p[j + 1], s[j + 1]) - kGap, u[j + 1]);
    }
    here_.close(begin, end, table_.row(i));
  }

  // What it scores that requests [from, to) of the step are request k of the plan.
  void score_pairs(std::size_t k, std::size_t from, std::size_t to) {
    const auto kind = static_cast<std::int32_t>(plan_.kind[k]);
    const auto number = static_cast<std::int32_t>(k);
    const auto largest = static_cast<std::int32_t>(plan_.most[k]);
    const Score least = least_[k];
    const Score most = most_[k];
    for (std::size_t j = from; j < to; ++j) {
      const Score off = std::max(std::max(0, asked_[j] - most), least - asked_[j]);
      const Score alike = kPair - off + (size_[j] == largest ? kSame : 0);
      score_[j] = (kind_[j] == kind && off <= kFarOff ? alike : kOther) + (vote_[j] == number ? kVote : 0);
    }
  }

  std::vector<std::int64_t> way_back() const {
    std::size_t i = plan_.kind.size();
    std::size_t j = kind_.size();
    std::vector<std::int64_t> number(j, -1);
    for (int state = table_.before(pair, i, j); i > 0 && j > 0;) {
      const auto now = static_cast<State>(state);
      if (now != only_step) --i;
      if (now != only_plan) --j;
      if (now == pair && plan_.kind[i] == kind_[j]) number[j] = static_cast<std::int64_t>(i);
      state = table_.before(now, i, j);
    }
    return number;
  }

  const PlanRequests& plan_;
  const Band& band_;
  Table table_;
  const std::vector<Score> least_, most_, asked_;
  const std::vector<std::int32_t> size_;  // the low bits tell them apart
  const std::vector<std::int32_t> kind_, vote_;
  std::vector<Score> score_;  // of one row, by request of the step
  Row above_, here_;
};

}  // namespace

std::vector<std::int64_t> match(const PlanRequests& plan, const StepRequests& step, const Band& band) {
  return Matching(plan, step, band).run();
}

}  // namespace stowplan::planning
