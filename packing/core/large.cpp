#include "large.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "best_fit.hpp"
#include "large_refill.hpp"
#include "search_random.hpp"
#ifdef TRACE
#include <cstdio>
extern double TRACE_LB;
#endif

namespace stowplan::packing {
namespace {

std::vector<double> keys(const Instance& in, const std::vector<Bytes>& crowd, double by_length, double by_crowd, double noise, Random& random) {
  std::vector<double> key(in.count());
  const auto most = static_cast<double>(*std::max_element(crowd.begin(), crowd.end()));
  for (std::int32_t k = 0; k < in.count(); ++k) {
    key[k] = std::log(static_cast<double>(in.size[k])) + by_length * std::log(static_cast<double>(in.end[k] - in.start[k])) + by_crowd * (static_cast<double>(crowd[k]) / most);
    if (noise > 0) key[k] += noise * random.wobble();
  }
  return key;
}

class Repair {
 public:
  Repair(const Problem& problem, const Control& control, const Stopwatch& watch, Bytes* offset)
      : p_(problem), control_(control), watch_(watch), offset_(offset), random_(control.seed) {
    index();
  }
  void run(Bytes bound, std::int64_t effort);
  Bytes peak() { return tallest().first; }

 private:
  using Tall = std::pair<Bytes, std::int32_t>;  // top, row
  Bytes top(std::int32_t row) const { return offset_[row] + p_.size[row]; }
  void index();
  Tall tallest();
  std::int64_t alive(Tick t) const;
  void across(std::size_t node, std::size_t lo, std::size_t hi, std::size_t before, Tick start,
              std::vector<std::int32_t>& rows) const;
  bool retry(Tick start, Tick end, std::int64_t level, std::int64_t& effort);
  std::vector<double> draw(const std::vector<Bytes>& crowd, const Instance& in, int attempt);

  const Problem& p_;
  const Control& control_;
  const Stopwatch& watch_;
  Bytes* offset_;
  Random random_;
  std::priority_queue<Tall> tops_;
  std::vector<std::int32_t> by_start_;
  std::vector<Tick> ends_;     // sorted
  std::vector<Tick> last_;  // a tree over by_start_: the latest end
  std::size_t leaves_ = 1;
};

void Repair::index() {
  const auto n = p_.n;
  by_start_.resize(n);
  std::iota(by_start_.begin(), by_start_.end(), 0);
  std::sort(by_start_.begin(), by_start_.end(), [&](std::int32_t a, std::int32_t b) {
    return p_.start[a] != p_.start[b] ? p_.start[a] < p_.start[b] : a < b;
  });
  ends_.assign(p_.end, p_.end + n);
  std::sort(ends_.begin(), ends_.end());
  while (leaves_ < n) leaves_ *= 2;
  last_.assign(2 * leaves_, std::numeric_limits<Tick>::min());
  for (std::size_t k = 0; k < n; ++k) last_[leaves_ + k] = p_.end[by_start_[k]];
  for (std::size_t node = leaves_ - 1; node > 0; --node) last_[node] = std::max(last_[2 * node], last_[2 * node + 1]);
  std::vector<Tall> all;
  all.reserve(n);
  for (std::size_t i = 0; i < n; ++i) all.emplace_back(top(static_cast<std::int32_t>(i)), static_cast<std::int32_t>(i));
  tops_ = std::priority_queue<Tall>(std::less<Tall>(), std::move(all));
}

Repair::Tall Repair::tallest() {
  while (tops_.top().first != top(tops_.top().second)) tops_.pop();
  return tops_.top();
}

void Repair::across(std::size_t node, std::size_t lo, std::size_t hi, std::size_t before, Tick start,
                    std::vector<std::int32_t>& rows) const {
  if (lo >= before || last_[node] <= start) return;
  if (node >= leaves_) {
    rows.push_back(by_start_[lo]);
    return;
  }
  across(2 * node, lo, (lo + hi) / 2, before, start, rows);
  across(2 * node + 1, (lo + hi) / 2, hi, before, start, rows);
}

bool Repair::retry(Tick start, Tick end, std::int64_t level, std::int64_t& effort) {
  std::vector<std::int32_t> rows, free;
  std::vector<Obstacle> obstacles;
  const auto first = static_cast<std::size_t>(
      std::lower_bound(by_start_.begin(), by_start_.end(), start, [&](std::int32_t r, Tick t) { return p_.start[r] < t; }) - by_start_.begin());
  across(1, 0, leaves_, first, start, rows);
  for (std::size_t k = first; k < p_.n && p_.start[by_start_[k]] < end; ++k) rows.push_back(by_start_[k]);
  for (auto row : rows) {
    if (p_.start[row] >= start && p_.end[row] <= end && is_plain(p_, row)) free.push_back(row);
    else add_obstacles(p_, row, offset_[row], start, end, obstacles);
  }
  const Instance in = make_instance(p_, free, obstacles);
  const auto m = in.count();
  if (m == 0) return false;
  Bytes goal = 0;
  for (auto row : free) goal = std::max(goal, top(row));
  const Bytes before = goal;
  const auto crowd = crowding(in);
  Bytes floor = *std::max_element(crowd.begin(), crowd.end());
  Refill refill(in);
  std::vector<std::int32_t> order(m), rank(m);
  std::vector<Bytes> got(m);
  std::vector<double> best_key;
  const int begin = level < 3 ? 0 : 8, attempts = begin + 16;
  for (int a = begin; a < attempts && effort > 0 && !watch_.expired() && goal > floor; ++a) {
    std::vector<double> key;
    if (!best_key.empty() && a % 2 != 0) {
      key = best_key;
      const double amount = random_.unit() * random_.unit();
      for (auto& k : key) k += amount * random_.wobble();
    } else {
      key = draw(crowd, in, a);
    }
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) { return key[x] != key[y] ? key[x] > key[y] : x < y; });
    for (std::int32_t k = 0; k < m; ++k) rank[order[k]] = k;
    effort -= m + static_cast<std::int64_t>(in.obstacles.size());
    const Bytes reached = refill.run(rank.data(), goal - 1, got.data());
    if (reached == kNoCeiling) continue;
    goal = reached;
    best_key = key;
    for (std::int32_t k = 0; k < m; ++k) offset_[in.row[k]] = got[k];
  }
#ifdef TRACE
  std::fprintf(stderr, "  window free %d obst %zu floor %.5f before %.5f after %.5f t=%.2f\n", m, obstacles.size(), floor*1.0/TRACE_LB, before*1.0/TRACE_LB, goal*1.0/TRACE_LB, watch_.seconds());
#endif
  if (goal == before) return false;
  for (auto row : free) tops_.emplace(top(row), row);
  return true;
}

std::vector<double> Repair::draw(const std::vector<Bytes>& crowd, const Instance& in, int attempt) {
  static const double kLength[] = {5, 1, 3, 1, 0.5, 10, 2, 0};
  static const double kCrowd[] = {512, 0, 256, 16, 0, 128, 512, 0};
  double by_length, by_crowd, noise;
  if (attempt < 8) {
    by_length = kLength[attempt];
    by_crowd = kCrowd[attempt];
    noise = 0;
  } else {
    by_length = kLength[random_.below(8)];
    by_crowd = kCrowd[random_.below(8)];
    noise = random_.unit();
  }
  return keys(in, crowd, by_length, by_crowd, noise, random_);
}

void Repair::run(Bytes bound, std::int64_t effort) {
  std::int64_t level = 0;
  Bytes reported = peak();
  while (effort > 0 && !watch_.expired()) {
    const auto [height, row] = tallest();
    if (height < reported) watch_.report(reported = height);
    if (height <= bound) return;
    const Tick a = p_.start[row], b = p_.end[row];
    const auto pos = static_cast<std::int64_t>(
      std::lower_bound(by_start_.begin(), by_start_.end(), a, [&](std::int32_t r, Tick t) { return p_.start[r] < t; }) - by_start_.begin());
    const auto dead = static_cast<std::int64_t>(std::upper_bound(ends_.begin(), ends_.end(), a) - ends_.begin());
    const std::int64_t live = std::max<std::int64_t>(pos - dead, 16);
    static const std::int64_t kWide[] = {8, 16, 4, 32, 8, 64};
    const std::int64_t reach = live * kWide[level % 6] / 2;
    const auto n = static_cast<std::int64_t>(p_.n);
    const Tick from = std::min(a, p_.start[by_start_[std::max<std::int64_t>(0, pos - reach)]]);
    const Tick to = std::max(b, pos + reach < n ? p_.start[by_start_[pos + reach]] : ends_.back());
    const bool ok = retry(from, to, level, effort);
    level = ok ? 0 : level + 1;
  }
}

}  // namespace

Bytes large(const Problem& p, const Control& control, Bytes* offset) {
  const Stopwatch watch(control);
  const Bytes bound = live_peak(p);
  std::vector<std::int32_t> plain;
  for (std::size_t i = 0; i < p.n; ++i)
    if (is_plain(p, i)) plain.push_back(static_cast<std::int32_t>(i));
  const bool all = plain.size() == p.n;
  std::vector<std::int64_t> order(p.n);
  std::vector<Bytes> trial(p.n);
  Bytes best = kNoCeiling;
  auto consider = [&] {
    Bytes peak = 0;
    for (std::size_t i = 0; i < p.n; ++i) peak = std::max(peak, trial[i] + p.size[i]);
    if (peak < best) { best = peak; std::copy(trial.begin(), trial.end(), offset); watch.report(best); }
  };
  Instance in;
  if (all) in = make_instance(p, plain, {});
  struct Taste { double by_length, by_crowd; };
  static const Taste kTastes[] = {{5, 512}, {1, 0}, {3, 256}, {10, 128}};
  Random random(control.seed);
  if (all) {
    const auto crowd = crowding(in);
    Refill refill(in);
    std::vector<std::int32_t> seq(p.n), rank(p.n);
    std::vector<Bytes> got(p.n);
    for (const auto& taste : kTastes) {
      const auto key = keys(in, crowd, taste.by_length, taste.by_crowd, 0, random);
      std::iota(seq.begin(), seq.end(), 0);
      std::sort(seq.begin(), seq.end(), [&](std::int32_t x, std::int32_t y) { return key[x] != key[y] ? key[x] > key[y] : x < y; });
      for (std::size_t k = 0; k < p.n; ++k) rank[seq[k]] = static_cast<std::int32_t>(k);
      refill.run(rank.data(), kNoCeiling - 1, got.data());
      for (std::size_t k = 0; k < p.n; ++k) trial[in.row[k]] = got[k];
      consider();
#ifdef TRACE
    std::fprintf(stderr, "start %g %g: %.5f t=%.2f\n", taste.by_length, taste.by_crowd, best*1.0/bound, watch.seconds()); TRACE_LB=bound;
#endif
      if (best == bound) break;
    }
  } else {
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return p.end[a]-p.start[a] != p.end[b]-p.start[b] ? p.end[a]-p.start[a] > p.end[b]-p.start[b] : a < b; });
    best_fit(p, order.data(), trial.data());
    consider();
  }
  in = Instance();
  std::vector<Bytes>().swap(trial);
  if (best <= bound) return best;
  const std::int64_t effort = control.effort > 0 ? control.effort : 10 * static_cast<std::int64_t>(p.n) + 1000000;
  Repair repair(p, control, watch, offset);
  repair.run(bound, effort);
  return repair.peak();
}

}  // namespace stowplan::packing
