#include "realign.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace stowplan::allocator {

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
  int before(State state, std::size_t i, std::size_t j) {
    return row(i)[j - static_cast<std::size_t>(band_.first[i])] >> (2 * state) & 3;
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

}  // namespace

std::vector<std::int64_t> realign(const AlignedPlan& plan, const AlignedStep& step, const Band& band) {
  const std::size_t n = plan.kind.size();
  const std::size_t m = step.kind.size();
  Table table(band);
  const std::vector<Score> least = levels(plan.least);
  const std::vector<Score> most = levels(plan.most);
  const std::vector<Score> asked = levels(step.size);
  const std::vector<std::int32_t> size(step.size.begin(), step.size.end());  // the low bits tell them apart
  const std::vector<std::int32_t> kind(step.kind.begin(), step.kind.end());
  const std::vector<std::int32_t> vote(step.vote.begin(), step.vote.end());
  std::vector<Score> score(m + 1);
  Row above(m);
  Row here(m);

  here.at_pair[1] = 0;
  here.close(0, static_cast<std::size_t>(band.last[0]) + 1, table.row(0));
  for (std::size_t i = 1; i <= n; ++i) {
    const auto begin = static_cast<std::size_t>(band.first[i]);
    const auto end = static_cast<std::size_t>(band.last[i]) + 1;
    std::swap(above, here);
    if (begin == static_cast<std::size_t>(band.first[i - 1]) && begin > 0) above.forget(begin - 1, begin);
    above.forget(static_cast<std::size_t>(band.last[i - 1]) + 1, end);

    const auto own = static_cast<std::int32_t>(plan.kind[i - 1]);
    const auto number = static_cast<std::int32_t>(i - 1);
    const Score low = least[i - 1];
    const Score high = most[i - 1];
    const auto largest = static_cast<std::int32_t>(plan.most[i - 1]);
    const std::size_t from = std::max<std::size_t>(begin, 1);
    for (std::size_t j = from - 1; j + 1 < end; ++j) {
      const Score off = std::max(std::max(0, asked[j] - high), low - asked[j]);
      const Score alike = kPair - off + (size[j] == largest ? kSame : 0);
      score[j] = (kind[j] == own && off <= kFarOff ? alike : kOther) + (vote[j] == number ? kVote : 0);
    }
    const Score* p = above.at_pair.data();
    const Score* u = above.at_plan.data();
    const Score* s = above.at_step.data();
    here.at_pair[begin + 1] = kNever;
    for (std::size_t j = from; j < end; ++j) {
      here.at_pair[j + 1] = std::max(std::max(p[j], u[j]), s[j]) + score[j - 1];
    }
    for (std::size_t j = begin; j < end; ++j) {
      here.at_plan[j + 1] = std::max(std::max(p[j + 1], s[j + 1]) - kGap, u[j + 1]);
    }
    here.close(begin, end, table.row(i));
  }

  std::vector<std::int64_t> number(m, -1);
  std::size_t i = n;
  std::size_t j = m;
  for (int state = table.before(pair, n, m); i > 0 && j > 0;) {
    const auto now = static_cast<State>(state);
    if (now != only_step) --i;
    if (now != only_plan) --j;
    if (now == pair && plan.kind[i] == step.kind[j]) number[j] = static_cast<std::int64_t>(i);
    state = table.before(now, i, j);
  }
  return number;
}

}  // namespace stowplan::allocator
