#include "beam.hpp"

#include <algorithm>
#include <utility>

#include "random.hpp"

namespace stowplan::packing {

Beam::Beam(const Instance& instance) : in_(instance), load_(instance.columns, 0) {
  if (!in_.obstacles.empty()) above_.resize(in_.columns);
  for (std::int32_t k = 0; k < in_.count(); ++k)
    for (Column c = in_.start[k]; c < in_.end[k]; ++c) load_[c] += in_.size[k];
  for (std::size_t o = 0; o < in_.obstacles.size(); ++o) {
    for (Tick c = in_.obstacles[o].start; c < in_.obstacles[o].end; ++c) {
      load_[c] += in_.obstacles[o].upper - in_.obstacles[o].lower;
      above_[c].push_back(static_cast<std::int32_t>(o));
    }
  }
  for (auto& column : above_)
    std::sort(column.begin(), column.end(),
              [&](std::int32_t a, std::int32_t b) { return in_.obstacles[a].lower < in_.obstacles[b].lower; });
  for (const Bytes load : load_) bound_ = std::max(bound_, load);
  Random random(1);
  for (std::int32_t k = 0; k < in_.count(); ++k) marks_.push_back(random.next());
}

Bytes Beam::run(const BeamOptions& options, const double* worth, Bytes limit, const Stopwatch& watch, Bytes* offset) {
  if (in_.count() == 0) return 0;
  options_ = options;
  worth_ = worth;
  limit_ = limit;
  foot_ = options.foot * static_cast<double>(bound_);
  steps_.clear();
  level_.clear();
  level_.push_back(root());
  if (bound_ > limit) return kNoCeiling;
  for (std::int32_t placed = 0; placed < in_.count(); ++placed) {
    if (watch.expired()) return kNoCeiling;
    heap_.clear();
    seen_.clear();
    for (const State& state : level_) expand(state);
    if (heap_.empty()) return kNoCeiling;
    std::sort(heap_.begin(), heap_.end());
    level_.resize(heap_.size());
    for (std::size_t k = 0; k < heap_.size(); ++k) std::swap(level_[k], next_[heap_[k].second]);
  }
  const auto best = std::min_element(level_.begin(), level_.end(), [](const State& a, const State& b) {
    return a.peak != b.peak ? a.peak < b.peak : a.step < b.step;
  });
  Bytes top = 0;
  for (std::int32_t step = best->step; step >= 0; step = steps_[step].before) {
    const Step& s = steps_[step];
    offset[s.block] = s.offset;
    top = std::max(top, s.offset + in_.size[s.block]);
  }
  return top;
}

double Beam::press(Bytes prospect) const {
  const double x = (static_cast<double>(prospect) - foot_) / static_cast<double>(bound_);
  if (x <= 0) return 0;
  double y = x;
  for (int k = 1; k < options_.power; ++k) y *= x;
  return y;
}

Beam::State Beam::root() {
  State s;
  s.lines.push_back({0, in_.columns, 0});
  s.prospect = load_;
  s.waiting.assign((in_.count() + 63) / 64, 0);
  for (std::int32_t k = 0; k < in_.count(); ++k) s.waiting[k / 64] |= std::uint64_t{1} << (k % 64);
  for (const Bytes load : load_) s.pressure += press(load);
  s.peak = bound_;
  s.left = in_.count();
  return s;
}

template <typename Visit>
bool Beam::any_inside(const State& s, const Line& line, Visit&& visit) const {
  const std::int32_t from = in_.first[line.start], to = in_.first[line.end];
  for (std::int32_t word = from / 64; word * 64 < to; ++word) {
    std::uint64_t bits = s.waiting[word];
    if (word == from / 64) bits &= ~std::uint64_t{0} << (from % 64);
    if (word == to / 64) bits &= (std::uint64_t{1} << (to % 64)) - 1;
    for (; bits != 0; bits &= bits - 1) {
      const std::int32_t block = word * 64 + __builtin_ctzll(bits);
      if (in_.end[block] <= line.end && fits(line, block) && visit(block)) return true;
    }
  }
  return false;
}

bool Beam::fits(const Line& line, std::int32_t block) const {
  if (above_.empty()) return true;
  const Bytes top = align_up(line.height, in_.alignment[block]) + in_.size[block];
  for (Column c = in_.start[block]; c < in_.end[block]; ++c)
    if (ceiling(c, line.height) < top) return false;
  return true;
}

// The bottom of the lowest obstacle at or above this height.
Bytes Beam::ceiling(Column column, Bytes height) const {
  const auto& list = above_[column];
  const auto it = std::lower_bound(list.begin(), list.end(), height,
                                   [&](std::int32_t o, Bytes h) { return in_.obstacles[o].lower < h; });
  return it == list.end() ? kNoCeiling : in_.obstacles[*it].lower;
}

void Beam::expand(const State& state) {
  line_state_ = state;
  State& s = line_state_;
  for (int lifts = 0; lifts < 3; ++lifts) {
    std::size_t low = 0;
    for (std::size_t k = 1; k < s.lines.size(); ++k)
      if (s.lines[k].height < s.lines[low].height) low = k;
    choices_.clear();
    any_inside(s, s.lines[low], [&](std::int32_t block) {
      choices_.push_back(block);
      return false;
    });
    const auto count = std::min(choices_.size(), static_cast<std::size_t>(options_.branch));
    std::partial_sort(
        choices_.begin(), choices_.begin() + static_cast<std::ptrdiff_t>(count), choices_.end(),
        [&](std::int32_t a, std::int32_t b) { return worth_[a] != worth_[b] ? worth_[a] > worth_[b] : a < b; });
    for (std::size_t k = 0; k < count; ++k) {
      child_ = s;
      place(child_, low, choices_[k]);
      if (child_.peak <= limit_ && settle(child_)) offer(child_);
    }
    if (s.lines.size() == 1 && above_.empty()) return;
    if (!lift(s, low) || !settle(s)) return;
    if (heap_.size() == static_cast<std::size_t>(options_.width) && s.pressure >= heap_.front().first) return;
  }
}

// Keeps the child if it is among the best of its level.
void Beam::offer(const State& child) {
  const bool full = heap_.size() == static_cast<std::size_t>(options_.width);
  if (full && child.pressure >= heap_.front().first) return;
  std::uint64_t hash = child.mark;
  for (const Line& line : child.lines) {
    hash = (hash ^ static_cast<std::uint64_t>(line.height)) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ static_cast<std::uint64_t>(line.start) ^ (hash >> 32)) * 0xbf58476d1ce4e5b9u;
  }
  const auto [met, first] = seen_.try_emplace(hash, child.pressure);
  if (!first && met->second <= child.pressure) return;
  met->second = child.pressure;

  std::int32_t place = static_cast<std::int32_t>(heap_.size());
  if (full) {
    std::pop_heap(heap_.begin(), heap_.end());
    place = heap_.back().second;
    heap_.pop_back();
  } else if (static_cast<std::size_t>(place) >= next_.size()) {
    next_.emplace_back();
  }
  next_[place] = child;
  heap_.emplace_back(child.pressure, place);
  std::push_heap(heap_.begin(), heap_.end());
}

void Beam::place(State& s, std::size_t at, std::int32_t block) {
  const Line line = s.lines[at];
  const Bytes offset = align_up(line.height, in_.alignment[block]);
  const Column start = in_.start[block], end = in_.end[block];
  if (offset > line.height) waste(s, start, end, offset - line.height);
  s.waiting[block / 64] &= ~(std::uint64_t{1} << (block % 64));
  s.mark ^= marks_[block];
  --s.left;
  steps_.push_back({s.step, block, offset});
  s.step = static_cast<std::int32_t>(steps_.size()) - 1;
  Line parts[3];
  std::size_t count = 0, mine = at;
  if (line.start < start) parts[count++] = {line.start, start, line.height}, ++mine;
  parts[count++] = {start, end, offset + in_.size[block]};
  if (end < line.end) parts[count++] = {end, line.end, line.height};
  s.lines[at] = parts[0];
  s.lines.insert(s.lines.begin() + static_cast<std::ptrdiff_t>(at) + 1, parts + 1, parts + count);
  merge(s, mine);
}

// Joins a line with neighbours of the same height; where it is then.
std::size_t Beam::merge(State& s, std::size_t at) {
  auto& lines = s.lines;
  if (at + 1 < lines.size() && lines[at + 1].height == lines[at].height) {
    lines[at].end = lines[at + 1].end;
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  if (at > 0 && lines[at - 1].height == lines[at].height) {
    lines[at - 1].end = lines[at].end;
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at));
    --at;
  }
  return at;
}

void Beam::waste(State& s, Column start, Column end, Bytes amount) {
  for (Column c = start; c < end; ++c) {
    const Bytes before = s.prospect[c], after = before + amount;
    s.prospect[c] = after;
    if (static_cast<double>(after) > foot_) s.pressure += press(after) - press(before);
    s.peak = std::max(s.peak, after);
  }
}

// Lifts a line that is no higher than its neighbours; false when a prospect then passes the limit.
bool Beam::lift(State& s, std::size_t at) {
  const Line line = s.lines[at];
  Bytes height = kNoCeiling;
  if (at > 0) height = s.lines[at - 1].height;
  if (at + 1 < s.lines.size()) height = std::min(height, s.lines[at + 1].height);
  if (above_.empty()) {
    waste(s, line.start, line.end, height - line.height);
    s.lines[at].height = height;
    merge(s, at);
    return s.peak <= limit_;
  }
  for (Column c = line.start; c < line.end; ++c) height = std::min(height, ceiling(c, line.height));
  if (height == kNoCeiling) return false;  // nothing to rise to
  waste(s, line.start, line.end, height - line.height);
  // What touches an obstacle goes on at its top.
  std::vector<Line> parts;
  for (Column c = line.start; c < line.end; ++c) {
    const auto& list = above_[c];
    Bytes top = height;
    for (const std::int32_t o : list)
      if (in_.obstacles[o].lower == height) top = in_.obstacles[o].upper;
    if (!parts.empty() && parts.back().height == top) {
      parts.back().end = c + 1;
    } else {
      parts.push_back({c, c + 1, top});
    }
  }
  s.lines[at] = parts[0];
  s.lines.insert(s.lines.begin() + static_cast<std::ptrdiff_t>(at) + 1, parts.begin() + 1, parts.end());
  merge(s, at + parts.size() - 1);
  if (parts.size() > 1) merge(s, at);
  return s.peak <= limit_;
}

// Lifts every line lower than its neighbours on which nothing fits; false when a prospect passes the limit.
bool Beam::settle(State& s) {
  if (s.left == 0) return s.peak <= limit_;
  for (std::size_t k = 0; k < s.lines.size();) {
    const Bytes height = s.lines[k].height;
    if ((k > 0 && s.lines[k - 1].height < height) || (k + 1 < s.lines.size() && s.lines[k + 1].height < height) ||
        any_inside(s, s.lines[k], [](std::int32_t) { return true; })) {
      ++k;
      continue;
    }
    if (!lift(s, k)) return false;
    k = k > 1 ? k - 2 : 0;
  }
  return true;
}

}  // namespace stowplan::packing
