#include "skyline_refill.hpp"

#include <algorithm>
#include <limits>

namespace stowplan::packing {
namespace {

constexpr std::int32_t kMixed = -2;
constexpr std::int32_t kNobody = -1;

}  // namespace

SkylineRefill::SkylineRefill(const Instance& instance, const Stopwatch& watch) : in_(instance), watch_(watch) {
  while (leaves_ * kBucket < in_.count()) leaves_ *= 2;
  if (!in_.obstacles.empty()) {
    while (ceiling_leaves_ < in_.columns) ceiling_leaves_ *= 2;
  }
}

Bytes SkylineRefill::run(const double* worth, Column reach, Bytes limit, Bytes* offset) {
  if (in_.count() == 0) return 0;
  handled_ += in_.count();
  reset(worth);
  reach_ = reach;
  Bytes top = 0;
  std::int32_t at = 0;
  for (std::int32_t left = in_.count(); left > 0;) {
    if (looks_ - timed_ >= kBetweenTimes) {
      timed_ = looks_;
      if (watch_.expired()) return kNoCeiling;
    }
    const Line& line = lines_[at];
    const Bytes before = line.before == kNobody ? kNoCeiling : lines_[line.before].height;
    const Bytes after = line.after == kNobody ? kNoCeiling : lines_[line.after].height;
    if (before < line.height || after < line.height) {
      at = before <= after ? line.before : line.after;
      continue;
    }
    const std::int32_t block = best_in(line, before, after);
    if (block == kNobody) {
      at = lift(at);
      continue;
    }
    offset[block] = align_up(line.height, in_.alignment[block]);
    const Bytes block_top = offset[block] + in_.size[block];
    if (block_top > limit) return kNoCeiling;
    top = std::max(top, block_top);
    remove(block);
    at = put(at, block, block_top);
    --left;
  }
  return top;
}

void SkylineRefill::reset(const double* worth) {
  waiting_.assign(static_cast<std::size_t>(leaves_) * kBucket, kGone);
  for (std::int32_t k = 0; k < in_.count(); ++k) waiting_[k] = {worth[k], in_.end[k]};
  tree_.resize(2 * static_cast<std::size_t>(leaves_));
  for (std::int32_t node = leaves_; node < 2 * leaves_; ++node) pull_bucket(node);
  for (std::int32_t node = leaves_ - 1; node > 0; --node) pull(node);
  if (!in_.obstacles.empty()) {
    ceilings_.assign(2 * static_cast<std::size_t>(ceiling_leaves_), {kNoCeiling, kNobody});
    for (const auto& sight : in_.floor) set_ceiling(1, 0, ceiling_leaves_, sight);
  }
  lines_.clear();
  lines_.push_back({0, in_.columns, 0, kNobody, kNobody});
}

// --- the waiting blocks

void SkylineRefill::pull(std::int32_t node) {
  const Below &a = tree_[2 * node], &b = tree_[2 * node + 1];
  tree_[node] = {std::max(a.most_worth, b.most_worth), std::min(a.least_end, b.least_end)};
}

void SkylineRefill::pull_bucket(std::int32_t node) {
  const std::int32_t first = (node - leaves_) * kBucket, last = std::min(first + kBucket, in_.count());
  Below all = {kGone.worth, kGone.end};
  for (std::int32_t k = first; k < last; ++k) {
    all = {std::max(all.most_worth, waiting_[k].worth), std::min(all.least_end, waiting_[k].end)};
  }
  tree_[node] = all;
}

void SkylineRefill::remove(std::int32_t block) {
  waiting_[block] = kGone;
  std::int32_t node = leaves_ + block / kBucket;
  pull_bucket(node);
  while (node /= 2) pull(node);
}

std::int32_t SkylineRefill::best_in(const Line& line, Bytes before, Bytes after) {
  from_ = in_.first[line.start], to_ = in_.first[line.end];
  best_ = kNobody;
  best_score_ = 0;
  line_ = &line;
  wall_before_ = static_cast<double>(before - line.height);
  wall_after_ = static_cast<double>(after - line.height);
  if (from_ < to_) descend(1, 0, leaves_ * kBucket);
  return best_;
}

void SkylineRefill::descend(std::int32_t node, std::int32_t lo, std::int32_t hi) {
  ++looks_;
  const Below& below = tree_[node];
  if (hi <= from_ || to_ <= lo || below.least_end > line_->end) return;
  if (below.most_worth < best_score_ || (below.most_worth == best_score_ && lo > best_)) return;
  if (node >= leaves_) return scan(std::max(lo, from_), std::min(hi, to_));
  const std::int32_t middle = (lo + hi) / 2;
  if (tree_[2 * node].most_worth >= tree_[2 * node + 1].most_worth) {
    descend(2 * node, lo, middle);
    descend(2 * node + 1, middle, hi);
  } else {
    descend(2 * node + 1, middle, hi);
    descend(2 * node, lo, middle);
  }
}

// Most of the time is spent here.
void SkylineRefill::scan(std::int32_t first, std::int32_t last) {
  const Line line = *line_;
  for (std::int32_t k = first; k < last; ++k) {
    const Waiting w = waiting_[k];
    if (w.end > line.end || w.worth < best_score_) continue;
    ++looks_;
    const auto size = static_cast<double>(in_.size[k]);
    const double area = size * static_cast<double>(w.end - in_.start[k]);
    const double lost = std::min<double>(in_.start[k] - line.start, reach_) * std::min(size, wall_before_) +
                        std::min<double>(line.end - w.end, reach_) * std::min(size, wall_after_);
    const double score = w.worth * (area / (area + lost));
    if (score < best_score_ || (score == best_score_ && k > best_) || !fits(k)) continue;
    best_ = k;
    best_score_ = score;
  }
}

bool SkylineRefill::fits(std::int32_t block) {
  if (in_.obstacles.empty()) return true;
  const Bytes high = ceiling(in_.start[block], in_.end[block]);
  return high == kNoCeiling || align_up(line_->height, in_.alignment[block]) <= high - in_.size[block];
}

// --- ceilings: per column the bottom of the lowest obstacle not yet passed

void SkylineRefill::mark(std::int32_t node, std::int32_t obstacle) {
  const Bytes height = obstacle < 0 ? kNoCeiling : in_.obstacles[obstacle].lower;
  ceilings_[node] = {height, obstacle};
}

void SkylineRefill::push(std::int32_t node) {
  if (ceilings_[node].only == kMixed) return;
  mark(2 * node, ceilings_[node].only);
  mark(2 * node + 1, ceilings_[node].only);
}

void SkylineRefill::set_ceiling(std::int32_t node, Column lo, Column hi, const Sight& sight) {
  if (hi <= sight.start || sight.end <= lo) return;
  if (sight.start <= lo && hi <= sight.end) return mark(node, sight.above);
  push(node);
  const Column middle = (lo + hi) / 2;
  set_ceiling(2 * node, lo, middle, sight);
  set_ceiling(2 * node + 1, middle, hi, sight);
  const auto &a = ceilings_[2 * node], &b = ceilings_[2 * node + 1];
  ceilings_[node] = {std::min(a.low, b.low), a.only == b.only ? a.only : kMixed};
}

Bytes SkylineRefill::ceiling_in(std::int32_t node, Column lo, Column hi, Column start, Column end) {
  if (hi <= start || end <= lo) return kNoCeiling;
  const Ceiling& c = ceilings_[node];
  if (c.only != kMixed || (start <= lo && hi <= end)) return c.low;
  const Column middle = (lo + hi) / 2;
  return std::min(ceiling_in(2 * node, lo, middle, start, end), ceiling_in(2 * node + 1, middle, hi, start, end));
}

// Collects in touched_ where within [start, end) the ceiling is at this height.
void SkylineRefill::touching(std::int32_t node, Column lo, Column hi, Column start, Column end, Bytes height) {
  if (hi <= start || end <= lo || ceilings_[node].low > height) return;
  if (ceilings_[node].only != kMixed) {
    touched_.push_back({std::max(lo, start), std::min(hi, end), ceilings_[node].only});
    return;
  }
  const Column middle = (lo + hi) / 2;
  touching(2 * node, lo, middle, start, end, height);
  touching(2 * node + 1, middle, hi, start, end, height);
}

// --- lines

std::int32_t SkylineRefill::lift(std::int32_t at) {
  const Line line = lines_[at];
  Bytes height = kNoCeiling;
  if (line.before != kNobody) height = lines_[line.before].height;
  if (line.after != kNobody) height = std::min(height, lines_[line.after].height);
  bands_.clear();
  touched_.clear();
  if (!in_.obstacles.empty()) {
    height = std::min(height, ceiling(line.start, line.end));
    touching(1, 0, ceiling_leaves_, line.start, line.end, height);
  }
  Column done = line.start;
  for (const Sight& t : touched_) {
    if (done < t.start) bands_.push_back({done, t.start, height});
    bands_.push_back({t.start, t.end, in_.obstacles[t.above].upper});
    done = t.end;
    for (Sight sight : in_.sights[t.above]) {
      sight.start = std::max(sight.start, t.start);
      sight.end = std::min(sight.end, t.end);
      if (sight.start < sight.end) set_ceiling(1, 0, ceiling_leaves_, sight);
    }
  }
  if (done < line.end) bands_.push_back({done, line.end, height});
  return splice(at, bands_);
}

std::int32_t SkylineRefill::put(std::int32_t at, std::int32_t block, Bytes top) {
  const Line line = lines_[at];
  bands_.clear();
  if (line.start < in_.start[block]) bands_.push_back({line.start, in_.start[block], line.height});
  bands_.push_back({in_.start[block], in_.end[block], top});
  if (in_.end[block] < line.end) bands_.push_back({in_.end[block], line.end, line.height});
  return splice(at, bands_);
}

// Replaces a line by bands that cover it; returns one of the lines made.
std::int32_t SkylineRefill::splice(std::int32_t at, const std::vector<Band>& bands) {
  const std::int32_t before = lines_[at].before, after = lines_[at].after;
  std::int32_t last = before;
  bool reuse = true;  // the slot of the line replaced
  for (const Band& band : bands) {
    if (last != kNobody && lines_[last].height == band.height) {
      lines_[last].end = band.end;
      continue;
    }
    std::int32_t slot = at;
    if (!reuse) {
      slot = static_cast<std::int32_t>(lines_.size());
      lines_.emplace_back();
    }
    reuse = false;
    lines_[slot] = {band.start, band.end, band.height, last, kNobody};
    if (last != kNobody) lines_[last].after = slot;
    last = slot;
  }
  if (after != kNobody && lines_[after].height == lines_[last].height) {
    lines_[last].end = lines_[after].end;
    lines_[last].after = lines_[after].after;
    if (lines_[last].after != kNobody) lines_[lines_[last].after].before = last;
    return last;
  }
  lines_[last].after = after;
  if (after != kNobody) lines_[after].before = last;
  return last;
}

}  // namespace stowplan::packing
