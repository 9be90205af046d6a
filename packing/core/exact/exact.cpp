#include "exact.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>

#include "decision.hpp"
#include "floating_pieces.hpp"

namespace stowplan::packing {
namespace {

using exact::Answer;
using exact::Budget;
using exact::Model;
using exact::Search;
using exact::Units;

constexpr std::uint64_t kFirstLimit = 2000;  // nodes of a run in the first round; doubles with every round
constexpr int kRandomOrders = 2;             // per round

// An order of preference among blocks that could be placed at the same offset.
struct Order {
  std::vector<std::int32_t> rank;
  bool by_total;
};

template <typename Less>
std::vector<std::int32_t> ranks(std::int32_t n, Less less) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), less);
  std::vector<std::int32_t> rank(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) rank[order[k]] = static_cast<std::int32_t>(k);
  return rank;
}

std::vector<Units> totals(const Model& model) {
  std::vector<Units> total;
  for (std::int32_t i = 0; i < model.n; ++i) total.push_back(model.highest(model.load, i));
  return total;
}

// The three orders of Moffitt's paper, by total load, width and area; the first two with totals kept up to date.
std::vector<Order> fixed_orders(const Model& model) {
  const std::vector<Units> total = totals(model);
  const auto& width = model.width;
  const auto& area = model.area;
  return {
      {ranks(model.n, [&](auto a, auto b) { return std::tie(width[a], area[a]) > std::tie(width[b], area[b]); }), true},
      {ranks(model.n, [&](auto a, auto b) { return std::tie(area[a], width[a]) > std::tie(area[b], width[b]); }), true},
      {ranks(model.n,
             [&](auto a, auto b) {
               return std::tie(width[a], area[a], total[a]) > std::tie(width[b], area[b], total[b]);
             }),
       false},
  };
}

// A blend of the three with noise; half of the time below totals kept up to date.
Order random_order(const Model& model, std::mt19937_64& random) {
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const std::vector<Units> total = totals(model);
  const double by_total = 30 * uniform() * uniform();
  const double by_width = uniform() + 0.01;
  const double by_size = uniform() < 0.4 ? 0 : uniform();
  const double noise = 0.5 * uniform() * uniform();
  std::vector<double> score;
  for (std::int32_t i = 0; i < model.n; ++i) {
    const double bell = uniform() + uniform() + uniform() + uniform() - 2;
    score.push_back(by_total * std::log(1.0 + total[i]) + by_width * std::log(1.0 + model.width[i]) +
                    by_size * std::log(1.0 + model.size[i]) + 2 * noise * bell);
  }
  return {ranks(model.n, [&](auto a, auto b) { return score[a] > score[b]; }), random() % 2 == 0};
}

class Solver {
 public:
  Solver(const Problem& problem, Bytes known, const Control& control)
      : model_(exact::build_model(problem)),
        search_(model_),
        orders_(fixed_orders(model_)),
        random_(control.seed),
        budget_(control),
        bound_(model_.lower_bound),
        ceiling_((known + model_.unit - 1) / model_.unit) {}

  void decide(Bytes capacity) {
    const Units wanted = capacity / model_.unit;
    for (std::uint64_t limit = kFirstLimit; bound_ <= wanted && offsets_.empty() && !budget_.check(); limit *= 2) {
      try_capacity(wanted, limit);
    }
  }

  void minimise() {
    for (int round = 0; bound_ < ceiling_ && !budget_.check(); ++round) {
      improve(round, kFirstLimit << std::min(round, 40));
    }
  }

  ExactResult result() const {
    ExactResult result;
    for (const Units offset : offsets_) result.offsets.push_back(offset * model_.unit);
    result.lower_bound = bound_ * model_.unit;
    return result;
  }

 private:
  // One round: now and then the lower bound, then down from the best peak by steps that are halved where a round of
  // orders is not enough.
  void improve(int round, std::uint64_t limit) {
    if (round % 4 < 2) try_capacity(bound_, limit);
    Units step = std::max<Units>((ceiling_ - bound_) / 3, 1);
    while (bound_ < ceiling_ && !budget_.over) {
      const Answer answer = try_capacity(std::max(bound_, ceiling_ - step), limit);
      if (answer == Answer::interrupted && step == 1) break;
      if (answer == Answer::interrupted) step /= 2;
      step = std::max<Units>(std::min(step, (ceiling_ - bound_) / 2), 1);
    }
  }

  Answer try_capacity(Units capacity, std::uint64_t limit) {
    const Answer answer = attempt(capacity, limit);
    if (answer == Answer::no) bound_ = std::max(bound_, capacity + 1);
    budget_.check();
    return answer;
  }

  // Every order of preference on one capacity, each for at most `limit` nodes.
  Answer attempt(Units capacity, std::uint64_t limit) {
    for (std::size_t k = 0; k < orders_.size() + kRandomOrders && !budget_.over; ++k) {
      const Order order = k < orders_.size() ? orders_[k] : random_order(model_, random_);
      const Answer answer = search_.run(capacity, order.rank, order.by_total, limit, budget_);
      if (answer == Answer::yes) accept(search_.offsets());
      if (answer == Answer::no && model_.floating) break;  // other orders would see the same
      if (answer != Answer::interrupted) return answer;
    }
    if (!model_.floating || budget_.over) return Answer::interrupted;
    std::vector<Units> offsets;
    const Answer answer = exact::solve_pieces(model_, capacity, limit, budget_, offsets);
    if (answer == Answer::yes) accept(std::move(offsets));
    return answer;
  }

  void accept(std::vector<Units> offsets) {
    offsets_ = std::move(offsets);
    ceiling_ = 0;
    for (std::int32_t i = 0; i < model_.n; ++i) ceiling_ = std::max(ceiling_, offsets_[i] + model_.size[i]);
    budget_.watch.report(ceiling_ * model_.unit);
  }

  const Model model_;
  Search search_;
  const std::vector<Order> orders_;
  std::mt19937_64 random_;
  Budget budget_;
  std::vector<Units> offsets_;  // the best so far; empty: none
  Units bound_;                 // proved
  Units ceiling_;               // peak of the best placement known
};

}  // namespace

ExactResult solve_exact(const Problem& problem, Bytes capacity, Bytes known, const Control& control) {
  Solver solver(problem, known, control);
  if (capacity >= 0) {
    solver.decide(capacity);
  } else {
    solver.minimise();
  }
  return solver.result();
}

}  // namespace stowplan::packing
