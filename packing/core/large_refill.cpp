#include "large_refill.hpp"

#include <algorithm>

namespace stowplan::packing {
namespace {

constexpr std::int32_t kGone = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kMixed = -2;
constexpr std::int32_t kNobody = -1;

}  // namespace

Refill::Refill(const Instance& instance) : in_(instance) {
  while (leaves_ < in_.count()) leaves_ *= 2;
  if (!in_.obstacles.empty()) {
    while (ceiling_leaves_ < in_.columns) ceiling_leaves_ *= 2;
  }
}

Bytes Refill::run(const std::int32_t* rank, Bytes limit, Bytes* offset) {
  if (in_.count() == 0) return 0;
  reset(rank);
  Bytes top = 0;
  std::int32_t at = 0;
  for (std::int32_t left = in_.count(); left > 0;) {
    const Line& line = lines_[at];
    const Bytes before = line.before == kNobody ? kNoCeiling : lines_[line.before].height;
    const Bytes after = line.after == kNobody ? kNoCeiling : lines_[line.after].height;
    if (before < line.height || after < line.height) {
      at = before <= after ? line.before : line.after;
      continue;
    }
    const std::int32_t block = best_in(line);
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

void Refill::reset(const std::int32_t* rank) {
  waiting_.assign(2 * static_cast<std::size_t>(leaves_), {kGone, std::numeric_limits<Column>::max(), kNoCeiling});
  for (std::int32_t k = 0; k < in_.count(); ++k) waiting_[leaves_ + k] = {rank[k], in_.end[k], in_.size[k]};
  for (std::int32_t node = leaves_ - 1; node > 0; --node) pull(node);
  if (!in_.obstacles.empty()) {
    ceilings_.assign(2 * static_cast<std::size_t>(ceiling_leaves_), {kNoCeiling, kNoCeiling, kNobody});
    for (const auto& sight : in_.floor) set_ceiling(1, 0, ceiling_leaves_, sight);
  }
  lines_.clear();
  lines_.push_back({0, in_.columns, 0, kNobody, kNobody});
}

// --- the waiting blocks

void Refill::pull(std::int32_t node) {
  const auto &a = waiting_[2 * node], &b = waiting_[2 * node + 1];
  waiting_[node] = {std::min(a.rank, b.rank), std::min(a.end, b.end), std::min(a.size, b.size)};
}

void Refill::remove(std::int32_t block) {
  std::int32_t node = leaves_ + block;
  waiting_[node] = {kGone, std::numeric_limits<Column>::max(), kNoCeiling};
  while (node /= 2) pull(node);
}

std::int32_t Refill::best_in(const Line& line) {
  const std::int32_t from = in_.first[line.start], to = in_.first[line.end];
  best_ = kNobody;
  best_rank_ = kGone;
  line_ = &line;
  room_ = kNoCeiling;
  if (!in_.obstacles.empty()) {
    const Bytes high = highest_in(1, 0, ceiling_leaves_, line.start, line.end);
    if (high != kNoCeiling) room_ = high - line.height;
  }
  if (from < to) descend(1, 0, leaves_, from, to);
  return best_;
}

void Refill::descend(std::int32_t node, std::int32_t lo, std::int32_t hi, std::int32_t from, std::int32_t to) {
  ++visits_;
  const Waiting& w = waiting_[node];
  if (hi <= from || to <= lo || w.rank >= best_rank_ || w.end > line_->end || w.size > room_) return;
  if (node >= leaves_) {
    const std::int32_t block = node - leaves_;
    if (room_ != kNoCeiling || !in_.obstacles.empty()) {
      const Bytes high = ceiling(in_.start[block], in_.end[block]);
      if (high != kNoCeiling && align_up(line_->height, in_.alignment[block]) > high - w.size) return;
    }
    best_ = block;
    best_rank_ = w.rank;
    return;
  }
  const std::int32_t middle = (lo + hi) / 2;
  if (waiting_[2 * node].rank < waiting_[2 * node + 1].rank) {
    descend(2 * node, lo, middle, from, to);
    descend(2 * node + 1, middle, hi, from, to);
  } else {
    descend(2 * node + 1, middle, hi, from, to);
    descend(2 * node, lo, middle, from, to);
  }
}

// --- ceilings: per column the bottom of the lowest obstacle not yet passed

void Refill::mark(std::int32_t node, std::int32_t obstacle) {
  const Bytes height = obstacle < 0 ? kNoCeiling : in_.obstacles[obstacle].lower;
  ceilings_[node] = {height, height, obstacle};
}

void Refill::push(std::int32_t node) {
  if (ceilings_[node].only == kMixed) return;
  mark(2 * node, ceilings_[node].only);
  mark(2 * node + 1, ceilings_[node].only);
}

void Refill::set_ceiling(std::int32_t node, Column lo, Column hi, const Sight& sight) {
  if (hi <= sight.start || sight.end <= lo) return;
  if (sight.start <= lo && hi <= sight.end) return mark(node, sight.above);
  push(node);
  const Column middle = (lo + hi) / 2;
  set_ceiling(2 * node, lo, middle, sight);
  set_ceiling(2 * node + 1, middle, hi, sight);
  const auto &a = ceilings_[2 * node], &b = ceilings_[2 * node + 1];
  ceilings_[node] = {std::min(a.low, b.low), std::max(a.high, b.high), a.only == b.only ? a.only : kMixed};
}

Bytes Refill::ceiling_in(std::int32_t node, Column lo, Column hi, Column start, Column end) {
  if (hi <= start || end <= lo) return kNoCeiling;
  const Ceiling& c = ceilings_[node];
  if (c.only != kMixed || (start <= lo && hi <= end)) return c.low;
  const Column middle = (lo + hi) / 2;
  return std::min(ceiling_in(2 * node, lo, middle, start, end), ceiling_in(2 * node + 1, middle, hi, start, end));
}

Bytes Refill::highest_in(std::int32_t node, Column lo, Column hi, Column start, Column end) {
  if (hi <= start || end <= lo) return 0;
  const Ceiling& c = ceilings_[node];
  if (c.only != kMixed || (start <= lo && hi <= end)) return c.high;
  const Column middle = (lo + hi) / 2;
  return std::max(highest_in(2 * node, lo, middle, start, end), highest_in(2 * node + 1, middle, hi, start, end));
}

// Collects in touched_ where within [start, end) the ceiling is at this height.
void Refill::touching(std::int32_t node, Column lo, Column hi, Column start, Column end, Bytes height) {
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

std::int32_t Refill::lift(std::int32_t at) {
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

std::int32_t Refill::put(std::int32_t at, std::int32_t block, Bytes top) {
  const Line line = lines_[at];
  bands_.clear();
  if (line.start < in_.start[block]) bands_.push_back({line.start, in_.start[block], line.height});
  bands_.push_back({in_.start[block], in_.end[block], top});
  if (in_.end[block] < line.end) bands_.push_back({in_.end[block], line.end, line.height});
  return splice(at, bands_);
}

// Replaces a line by bands that cover it; returns one of the lines made.
std::int32_t Refill::splice(std::int32_t at, const std::vector<Band>& bands) {
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
