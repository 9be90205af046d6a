#include "exact.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
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
using exact::Clock;
using exact::kMostBlocks;
using exact::Model;
using exact::Search;
using exact::Table;
using exact::Units;

constexpr std::uint64_t kFirstLimit = 2000;  // nodes of a run in the first round; doubles with every round
constexpr int kRandomOrders = 2;             // per round

// An order of preference among blocks that could be placed at the same offset.
struct Order {
  std::string name;
  std::vector<std::int32_t> rank;
  bool by_total;
};

// A component of the problem: it shares no moment with the others.
struct Component {
  Model model;
  std::unique_ptr<Search> search;
  std::vector<Order> orders;
  std::vector<Units> offsets;  // the best so far; empty: none
  std::string won_by;
  Units bound = 0;    // proved
  Units ceiling = 0;  // peak of offsets, or beyond what any sensible placement needs
  bool hopeless = false;

  Bytes peak() const { return ceiling * model.unit; }
  Bytes lower_bound() const { return bound * model.unit; }
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
  std::vector<Units> total(static_cast<std::size_t>(model.n), 0);
  for (std::int32_t i = 0; i < model.n; ++i) {
    for (std::int32_t p = model.first_piece[i]; p < model.first_piece[i + 1]; ++p) {
      const auto first = model.load.begin() + model.pieces[p].first;
      total[i] = std::max(total[i], *std::max_element(first, model.load.begin() + model.pieces[p].last + 1));
    }
  }
  return total;
}

// The three orders of Moffitt's paper, by total load, width and area; the first two with totals kept up to date.
std::vector<Order> fixed_orders(const Model& model) {
  const std::vector<Units> total = totals(model);
  const auto& width = model.width;
  const auto& area = model.area;
  return {
      {"total, width, area",
       ranks(model.n, [&](auto a, auto b) { return std::tie(width[a], area[a]) > std::tie(width[b], area[b]); }), true},
      {"total, area, width",
       ranks(model.n, [&](auto a, auto b) { return std::tie(area[a], width[a]) > std::tie(area[b], width[b]); }), true},
      {"width, area, total",
       ranks(model.n,
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
  return {"random", ranks(model.n, [&](auto a, auto b) { return score[a] > score[b]; }), random() % 2 == 0};
}

class Solver {
 public:
  Solver(const Problem& problem, const ExactOptions& options)
      : problem_(problem), options_(options), random_(options.seed), refuted_(std::size_t{1} << exact::kTableBits, 0) {
    budget_.cancel = options.cancel;
    budget_.node_limit = options.node_limit;
    if (options.time_limit < 1e9) {
      budget_.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(std::max(options.time_limit, 0.0)));
    }
    if (options.progress != nullptr) {
      budget_.report = [this] { return report(); };
    }
    for (const std::vector<std::int32_t>& blocks : exact::components(problem)) {
      Component part;
      part.model = exact::build_model(problem, blocks);
      part.bound = part.model.lower_bound;
      for (std::int32_t i = 0; i < part.model.n; ++i) {
        part.ceiling += part.model.size[i] + part.model.alignment[i] + std::max<Units>(part.model.fixed[i], 0);
      }
      components_.push_back(std::move(part));
    }
    for (std::size_t b = 0; b < problem.n; ++b) {
      floor_ = std::max(floor_, std::max<Bytes>(problem.fixed[b], 0) + problem.size[b]);
    }
  }

  ExactResult run() { return options_.capacity >= 0 ? decide() : minimise(); }

 private:
  Bytes lower_bound() const {
    Bytes bound = floor_;
    for (const Component& part : components_) bound = std::max(bound, part.lower_bound());
    return bound;
  }

  Bytes peak() const {
    Bytes peak = floor_;
    for (const Component& part : components_) peak = std::max(peak, part.peak());
    return peak;
  }

  bool is_placed() const {
    return std::all_of(components_.begin(), components_.end(),
                       [](const Component& part) { return !part.offsets.empty(); });
  }

  bool report() {
    if (options_.progress == nullptr) return true;
    return options_.progress(options_.context, is_placed() ? peak() : -1, lower_bound(), budget_.nodes);
  }

  ExactResult result(Status status) const {
    ExactResult result;
    result.status = status;
    result.lower_bound = lower_bound();
    result.nodes = budget_.nodes;
    if (status != Status::optimal && status != Status::feasible) return result;
    result.offsets.resize(problem_.n);
    for (std::size_t b = 0; b < problem_.n; ++b) result.offsets[b] = std::max<Bytes>(problem_.fixed[b], 0);
    const Component* highest = nullptr;
    for (const Component& part : components_) {
      if (highest == nullptr || part.peak() > highest->peak()) highest = &part;
      for (std::int32_t i = 0; i < part.model.n; ++i) {
        result.offsets[part.model.block[i]] = part.offsets[i] * part.model.unit;
      }
    }
    if (highest != nullptr) result.won_by = highest->won_by;
    result.peak = peak();
    if (result.peak == result.lower_bound) result.status = Status::optimal;
    return result;
  }

  void accept(Component& part, std::vector<Units> offsets, std::string won_by) {
    Units peak = 0;
    for (std::int32_t i = 0; i < part.model.n; ++i) peak = std::max(peak, offsets[i] + part.model.size[i]);
    part.ceiling = peak;
    part.offsets = std::move(offsets);
    part.won_by = std::move(won_by);
    if (!report()) budget_.over = true;
  }

  void prepare(Component& part) {
    if (part.search) return;
    const auto number = static_cast<std::uint64_t>(&part - components_.data());
    part.search = std::make_unique<Search>(part.model, refuted_, number);
    part.orders = fixed_orders(part.model);
  }

  // One round on one capacity: every order of preference, each for at most `limit` nodes.
  Answer attempt(Component& part, Units capacity, std::uint64_t limit) {
    if (part.model.n > kMostBlocks) {
      budget_.over = true;
      return Answer::interrupted;
    }
    prepare(part);
    for (std::size_t k = 0; k < part.orders.size() + kRandomOrders && !budget_.over; ++k) {
      const Order drawn = k < part.orders.size() ? Order{} : random_order(part.model, random_);
      const Order& order = k < part.orders.size() ? part.orders[k] : drawn;
      const Answer answer = part.search->run(capacity, order.rank, order.by_total, limit, budget_);
      if (answer == Answer::yes) {
        accept(part, part.search->offsets(), order.name);
        return answer;
      }
      if (answer == Answer::no && !part.model.floating) return answer;
      if (answer == Answer::no) break;  // other orders would see the same
    }
    if (!part.model.floating || budget_.over) return Answer::interrupted;
    std::vector<Units> offsets;
    const Answer answer = exact::solve_pieces(part.model, capacity, limit, budget_, offsets);
    if (answer == Answer::yes) accept(part, std::move(offsets), "pieces");
    return answer;
  }

  ExactResult decide() {
    if (lower_bound() > options_.capacity) return result(Status::infeasible);
    for (std::uint64_t limit = kFirstLimit; !budget_.over; limit *= 2) {
      bool solved = true;
      for (Component& part : components_) {
        if (!part.offsets.empty()) continue;
        const Units capacity = options_.capacity / part.model.unit;
        const Answer answer = attempt(part, capacity, limit);
        if (answer == Answer::no) {
          part.bound = capacity + 1;
          return result(Status::infeasible);
        }
        solved = solved && answer == Answer::yes;
      }
      if (solved) return result(Status::feasible);
      budget_.check();
    }
    return result(Status::unknown);
  }

  // A first placement: from the caller, or by a dive without a capacity. The clock does not interrupt the first dive,
  // which runs straight down unless fixed blocks are in the way.
  void start(Component& part) {
    if (options_.incumbent != nullptr) {
      Bytes peak = 0;
      std::vector<Units> offsets;
      bool whole = true;
      for (std::int32_t i = 0; i < part.model.n; ++i) {
        const Bytes offset = options_.incumbent[part.model.block[i]];
        whole = whole && offset % part.model.unit == 0;
        peak = std::max(peak, offset + part.model.size[i] * part.model.unit);
        offsets.push_back(offset / part.model.unit);
      }
      if (whole) return accept(part, std::move(offsets), "incumbent");
    }
    if (part.model.n > kMostBlocks) return;
    prepare(part);
    Budget patient;
    patient.cancel = options_.cancel;
    for (const Order& order : part.orders) {
      const std::uint64_t limit = 50 * static_cast<std::uint64_t>(part.model.n) + 1000;
      const Answer answer = part.search->run(part.ceiling, order.rank, order.by_total, limit, patient);
      if (answer == Answer::yes) {
        accept(part, part.search->offsets(), order.name);
        break;
      }
      if (budget_.check()) break;
    }
    budget_.nodes += patient.nodes;
  }

  // One round of a component: now and then its lower bound, then down from the best peak by steps that are halved
  // where a round of orders is not enough.
  void improve(Component& part, int round, std::uint64_t limit) {
    const auto low = [&] { return std::max(part.bound, lower_bound() / part.model.unit); };
    const auto try_capacity = [&](Units capacity) {
      const Answer answer = attempt(part, capacity, limit);
      if (answer == Answer::no) part.bound = std::max(part.bound, capacity + 1);
      budget_.check();
      return answer;
    };
    if (round % 4 < 2 && low() < part.ceiling) try_capacity(low());
    Units step = std::max<Units>((part.ceiling - low()) / 3, 1);
    while (low() < part.ceiling && !budget_.over) {
      const Answer answer = try_capacity(std::max(low(), part.ceiling - step));
      if (answer == Answer::interrupted && step == 1) break;
      if (answer == Answer::interrupted) step /= 2;
      step = std::max<Units>(std::min(step, (part.ceiling - low()) / 2), 1);
    }
    // Another component may have raised the bound of all above this ceiling. Then any placement will do, if there is
    // one.
    if (part.offsets.empty() && part.bound < part.ceiling && low() >= part.ceiling) try_capacity(part.ceiling);
    // Nothing up to the ceiling: where no placement is known, there is none.
    part.hopeless = part.offsets.empty() && part.bound >= part.ceiling;
  }

  ExactResult minimise() {
    for (Component& part : components_) start(part);
    budget_.check();
    for (int round = 0; !budget_.over; ++round) {
      const std::uint64_t limit = kFirstLimit << std::min(round, 40);
      bool done = true;
      for (Component& part : components_) {
        if (!part.offsets.empty() && part.peak() <= lower_bound()) continue;
        improve(part, round, limit);
        if (part.hopeless) return result(Status::infeasible);
        done = done && !part.offsets.empty() && part.peak() <= lower_bound();
      }
      if (done) break;
    }
    return result(is_placed() ? Status::feasible : Status::unknown);
  }

  const Problem& problem_;
  const ExactOptions& options_;
  std::mt19937_64 random_;
  Table refuted_;
  Budget budget_;
  std::vector<Component> components_;
  Bytes floor_ = 0;  // every block ends there or above
};

}  // namespace

ExactResult solve_exact(const Problem& problem, const ExactOptions& options) { return Solver(problem, options).run(); }

}  // namespace stowplan::packing
