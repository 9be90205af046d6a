#include "realign.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace stowplan::allocator {

namespace {

constexpr float kPair = 3;        // of the same kind
constexpr float kOther = -4;      // of different kinds
constexpr float kDoubled = 0.3F;  // off, for each time that a size is doubled or halved beyond what the plan has seen
constexpr float kFarOff = 4;      // times; from there on the pair is as bad as one of different kinds
constexpr float kSame = 0.15F;    // on, for the plan's own size
constexpr float kVote = 12;
constexpr float kGap = 8;
constexpr float kNever = -1e9F;

enum State : std::uint8_t { pair, only_plan, only_step };
using Scores = std::array<float, 3>;  // by the state in which a path ends

// The best of three, and which; the first of equals.
std::pair<float, std::uint8_t> best(const Scores& s) {
  std::uint8_t at = pair;
  if (s[only_plan] > s[at]) at = only_plan;
  if (s[only_step] > s[at]) at = only_step;
  return {s[at], at};
}

class Table {
 public:
  explicit Table(const Band& band) : band_(band), row_(band.first.size() + 1) {
    for (std::size_t i = 0; i < band.first.size(); ++i) {
      row_[i + 1] = row_[i] + static_cast<std::size_t>(band.last[i] - band.first[i] + 1);
    }
    cells_.resize(row_.back());
  }
  std::uint8_t& at(std::size_t i, std::size_t j) {
    return cells_[row_[i] + j - static_cast<std::size_t>(band_.first[i])];
  }

 private:
  const Band& band_;
  std::vector<std::size_t> row_;
  std::vector<std::uint8_t> cells_;  // from which state each state was reached: two bits each
};

float log2_of(std::int64_t size) { return std::log2(static_cast<float>(size) + 1); }

}  // namespace

std::vector<std::int64_t> realign(const AlignedPlan& plan, const AlignedStep& step, const Band& band) {
  const std::size_t n = plan.kind.size();
  const std::size_t m = step.kind.size();
  Table from(band);
  std::vector<Scores> row(m + 1, Scores{kNever, kNever, kNever});
  std::vector<float> size;
  for (const std::int64_t bytes : step.size) size.push_back(log2_of(bytes));

  row[0][pair] = 0;
  for (std::size_t j = 1; j <= static_cast<std::size_t>(band.last[0]); ++j) row[j][only_step] = -kGap;
  for (std::size_t i = 1; i <= n; ++i) {
    const auto begin = static_cast<std::size_t>(band.first[i]);
    const auto end = static_cast<std::size_t>(band.last[i]);
    const float least = log2_of(plan.least[i - 1]);
    const float most = log2_of(plan.most[i - 1]);
    const bool known = begin > 0 && begin > static_cast<std::size_t>(band.first[i - 1]);
    Scores diagonal = known ? row[begin - 1] : Scores{kNever, kNever, kNever};
    Scores left{kNever, kNever, kNever};
    for (std::size_t j = begin; j <= end; ++j) {
      const bool inside = j <= static_cast<std::size_t>(band.last[i - 1]);
      const Scores above = inside ? row[j] : Scores{kNever, kNever, kNever};
      Scores now{kNever, kNever, kNever};
      std::uint8_t states = 0;
      if (j > 0) {
        float score = kOther;
        if (plan.kind[i - 1] == step.kind[j - 1]) {
          const float off = std::max({0.0F, size[j - 1] - most, least - size[j - 1]});
          score = off > kFarOff ? kOther : kPair - kDoubled * off;
          if (step.size[j - 1] == plan.most[i - 1]) score += kSame;
        }
        if (step.vote[j - 1] == static_cast<std::int64_t>(i - 1)) score += kVote;
        const auto [value, state] = best(diagonal);
        now[pair] = value + score;
        states = state;
      }
      const auto [over, over_state] = best({above[pair] - kGap, above[only_plan], above[only_step] - kGap});
      now[only_plan] = over;
      const auto [along, along_state] = best({left[pair] - kGap, left[only_plan] - kGap, left[only_step]});
      now[only_step] = along;
      from.at(i, j) = static_cast<std::uint8_t>(states | over_state << 2 | along_state << 4);
      diagonal = above;
      row[j] = left = now;
    }
  }

  std::vector<std::int64_t> number(m, -1);
  std::size_t i = n;
  std::size_t j = m;
  for (std::uint8_t state = best(row[m]).second; i > 0 && j > 0;) {
    const std::uint8_t states = from.at(i, j);
    if (state == pair) {
      --i, --j;
      if (plan.kind[i] == step.kind[j]) number[j] = static_cast<std::int64_t>(i);
      state = states & 3;
    } else if (state == only_plan) {
      --i;
      state = states >> 2 & 3;
    } else {
      --j;
      state = states >> 4 & 3;
    }
  }
  return number;
}

}  // namespace stowplan::allocator
