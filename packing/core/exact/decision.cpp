#include "decision.hpp"

#include <algorithm>
#include <limits>

#include "random.hpp"

namespace stowplan::packing::exact {
namespace {

constexpr Units kNever = std::numeric_limits<Units>::max() / 4;
constexpr int kMostRounds = 64;
constexpr std::uint64_t kMostKept = 1 << 20;  // states in the table: two for each node of a run, and in all

std::uint64_t mix(std::uint64_t x) { return Random(x).next(); }

}  // namespace

Search::Search(const Model& model)
    : model_(model),
      lowest_(model.n),
      floor_(model.sections),
      support_(model.sections),
      words_((static_cast<std::size_t>(model.n) + 63) / 64),
      neighbours_(words_ * model.n, 0),
      placed_set_(words_, 0),
      conflict_(words_, 0),
      explained_(model.n) {
  for (std::int32_t i = 0; i < model.n; ++i) {
    for (const auto& [k, above, below] : model.conflicts_of(i)) {
      neighbours_[i * words_ + (k >> 6)] |= std::uint64_t{1} << (k & 63);
    }
  }
  std::uint64_t covered = 0;
  for (const Piece& piece : model.pieces) covered += static_cast<std::uint64_t>(piece.last - piece.first + 1);
  work_per_block_ = 1 + covered / std::max<std::uint64_t>(static_cast<std::uint64_t>(model.n), 1);
}

Answer Search::run(Units capacity, const std::vector<std::int32_t>& rank, bool by_total, std::uint64_t node_limit,
                   Budget& budget) {
  const auto n = static_cast<std::size_t>(model_.n);
  const std::uint64_t kept = 2 * std::min(node_limit, kMostKept / 2);
  if (refuted_.size() < kept) refuted_.assign(kept, 0);
  capacity_ = capacity;
  rank_ = rank.data();
  by_total_ = by_total;
  budget_ = &budget;
  nodes_left_ = node_limit;
  stopped_ = false;
  offset_.assign(n, 0);
  excluded_at_.assign(n, -1);
  placed_.assign(n, 0);
  waiting_.assign(n, 0);
  total_.assign(n, 0);
  rest_ = model_.load;
  changes_.clear();
  last_change_.assign(n, -1);
  exclusions_.clear();
  states_.clear();
  saved_.clear();
  std::fill(placed_set_.begin(), placed_set_.end(), 0);
  open_.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    open_[i] = static_cast<std::int32_t>(i);
    offset_[i] = std::max<Units>(model_.fixed[i], 0);
    if (model_.next_twin[i] >= 0) waiting_[model_.next_twin[i]] = 1;
  }
  std::sort(open_.begin(), open_.end(),
            [&](std::int32_t a, std::int32_t b) { return model_.first_section[a] < model_.first_section[b]; });
  for (std::size_t i = 0; i < n; ++i) {
    if (offset_[i] + model_.size[i] > capacity) return Answer::no;
  }
  if (solve_rest(0, n, -1)) return Answer::yes;
  return stopped_ ? Answer::interrupted : Answer::no;
}

// Splits open_[begin, end) without `placed` into groups that share no section, and solves one after the other: when one
// cannot be solved, no other solution of the earlier ones would help.
bool Search::solve_rest(std::size_t begin, std::size_t end, std::int32_t placed) {
  const std::size_t base = open_.size();
  std::vector<Group> groups;
  std::int32_t reach = -1;
  for (std::size_t k = begin; k < end; ++k) {
    const std::int32_t i = open_[k];
    if (i == placed) continue;
    if (model_.first_section[i] > reach) groups.push_back({open_.size(), open_.size()});
    reach = std::max(reach, model_.last_section[i]);
    open_.push_back(i);
    groups.back().end = open_.size();
  }
  std::vector<Units> saved;
  if (by_total_ && (groups.size() > 1 || placed < 0)) {
    for (std::size_t k = base; k < open_.size(); ++k) {
      const std::int32_t i = open_[k];
      saved.push_back(total_[i]);
      total_[i] = model_.highest(rest_, i);
    }
  }
  if (groups.size() > 1) {
    std::sort(groups.begin(), groups.end(),
              [](const Group& a, const Group& b) { return a.end - a.begin < b.end - b.begin; });
  }
  const std::size_t changes = changes_.size();
  const std::size_t exclusions = exclusions_.size();
  bool solved = true;
  std::size_t done = 0;
  for (; solved && done < groups.size(); ++done) solved = solve(groups[done].begin, groups[done].end);
  if (!solved) {
    // The groups solved before keep their blocks placed.
    for (std::size_t group = done - 1; group-- > 0;) {
      for (std::size_t k = groups[group].begin; k < groups[group].end; ++k) lift(open_[k]);
    }
    rewind(changes, exclusions);
  }
  for (std::size_t k = 0; k < saved.size(); ++k) total_[open_[base + k]] = saved[k];
  open_.resize(base);
  return solved;
}

void Search::rewind(std::size_t changes, std::size_t exclusions) {
  for (; changes_.size() > changes; changes_.pop_back()) {
    const Change& change = changes_.back();
    offset_[change.block] = change.offset;
    last_change_[change.block] = change.previous;
  }
  for (; exclusions_.size() > exclusions; exclusions_.pop_back()) {
    excluded_at_[exclusions_.back().block] = exclusions_.back().excluded_at;
  }
}

// False, with the conflict, when an open block would be lifted beyond the capacity.
bool Search::place(std::int32_t i) {
  placed_[i] = 1;
  placed_set_[i >> 6] |= std::uint64_t{1} << (i & 63);
  const Units x = offset_[i];
  model_.each_section(i, [&](const Piece& piece, std::int32_t s) { rest_[s] -= piece.upper - piece.lower; });
  if (model_.next_twin[i] >= 0) waiting_[model_.next_twin[i]] = 0;
  for (const auto& [k, above, below] : model_.conflicts_of(i)) {
    if (placed_[k] || x + above <= offset_[k]) continue;
    const Units risen = align_up(x + above, model_.alignment[k]);
    if (model_.fixed[k] >= 0 || risen + model_.size[k] > capacity_) {
      start_conflict();
      add(i);
      if (offset_[k] >= x - below + 1) {
        explain(k, x - below + 1);
      } else {
        blame_every_decision();
      }
      return false;
    }
    changes_.push_back({k, offset_[k], i, last_change_[k], x - below + 1});
    last_change_[k] = static_cast<std::int32_t>(changes_.size()) - 1;
    offset_[k] = risen;
  }
  return true;
}

void Search::lift(std::int32_t i) {
  placed_[i] = 0;
  placed_set_[i >> 6] &= ~(std::uint64_t{1} << (i & 63));
  model_.each_section(i, [&](const Piece& piece, std::int32_t s) { rest_[s] += piece.upper - piece.lower; });
  if (model_.next_twin[i] >= 0) waiting_[model_.next_twin[i]] = 1;
}

// False, with the conflict, when the open blocks cannot be placed; else candidate_ is the next block to branch on.
bool Search::infer(std::size_t begin, std::size_t end) {
  std::int32_t first = model_.sections;
  std::int32_t last = -1;
  Units level = kNever;
  candidate_ = -1;
  key_ = static_cast<std::uint64_t>(capacity_);
  blocked_.clear();
  for (std::size_t k = begin; k < end; ++k) {
    const std::int32_t i = open_[k];
    first = std::min(first, model_.first_section[i]);
    last = std::max(last, model_.last_section[i]);
    const bool blocked = is_blocked(i);
    key_ += mix(mix(static_cast<std::uint64_t>(i) << 1 | blocked) + static_cast<std::uint64_t>(offset_[i]));
    lowest_[i] = blocked ? kNever : offset_[i];
    if (blocked) {
      blocked_.push_back(i);
      continue;
    }
    if (offset_[i] > level) continue;
    if (offset_[i] < level || total_[i] > total_[candidate_] ||
        (total_[i] == total_[candidate_] && rank_[i] < rank_[candidate_])) {
      candidate_ = i;
    }
    level = offset_[i];
  }
  key_ = mix(key_) | 1;
  for (const std::int32_t i : blocked_) {
    if (!waiting_[i] && offset_[i] + model_.size[i] <= level) {
      start_conflict();
      explain_room(i);
      return false;
    }
  }
  std::fill(floor_.begin() + first, floor_.begin() + last + 1, kNever);
  std::fill(support_.begin() + first, support_.begin() + last + 1, kNever);
  const auto cover = [&](std::int32_t i) {
    const Units x = lowest_[i];
    model_.each_section(i, [&](const Piece& piece, std::int32_t s) {
      support_[s] = std::min(support_[s], x + piece.upper);
      floor_[s] = std::min(floor_[s], x + piece.lower);
    });
  };
  for (std::size_t k = begin; k < end; ++k) {
    if (lowest_[open_[k]] != kNever) cover(open_[k]);
  }
  // Windows can support each other in a circle, each turn a little lower: a blocked block is never below its offset,
  // and goes there at once when that takes long.
  bool changed = true;
  for (int round = 0; changed; ++round) {
    changed = false;
    for (const std::int32_t i : blocked_) {
      Units lowest = kNever;
      model_.each_section(
          i, [&](const Piece& piece, std::int32_t s) { lowest = std::min(lowest, support_[s] - piece.lower); });
      if (lowest >= kNever / 2) continue;
      lowest = lowest <= offset_[i] || round > kMostRounds ? offset_[i] : align_up(lowest, model_.alignment[i]);
      if (lowest >= lowest_[i]) continue;
      lowest_[i] = lowest;
      changed = true;
      cover(i);
    }
  }
  for (const std::int32_t i : blocked_) {
    if (lowest_[i] + model_.size[i] > capacity_) {
      start_conflict();
      explain_raised(i, capacity_ - model_.size[i] + 1);
      return false;
    }
  }
  for (std::int32_t s = first; s <= last; ++s) {
    if (rest_[s] != 0 && floor_[s] + rest_[s] > capacity_) {
      start_conflict();
      explain_section(begin, end, s, capacity_ - rest_[s] + 1);
      return false;
    }
  }
  for (const std::int32_t i : blocked_) {
    if (waiting_[i]) continue;
    Units low = kNever;
    model_.each_section(i, [&](const Piece&, std::int32_t s) { low = std::min(low, floor_[s]); });
    if (low >= offset_[i] + model_.size[i]) {
      start_conflict();
      explain_room(i);
      return false;
    }
  }
  if (refuted_[key_ % refuted_.size()] == key_) {
    explain_state(begin, end);
    return false;
  }
  return true;
}

// Places all of open_[begin, end), or restores everything and leaves the conflict.
bool Search::solve(std::size_t begin, std::size_t end) {
  const std::size_t changes = changes_.size();
  const std::size_t exclusions = exclusions_.size();
  const std::size_t states = states_.size();
  const std::size_t saved = saved_.size();
  const bool solved = [&] {
    while (true) {
      if (nodes_left_ == 0 || (++budget_->nodes % 1024 == 0 && budget_->check())) stopped_ = true;
      if (budget_->spend(work_per_block_ * (end - begin))) stopped_ = true;
      if (stopped_) return false;
      --nodes_left_;
      if (!infer(begin, end)) return false;
      states_.push_back(key_);
      const std::int32_t i = candidate_;
      if (place(i) && solve_rest(begin, end, i)) return true;
      rewind(changes, exclusions_.size());
      lift(i);
      if (stopped_) return false;
      if (!has(i)) return false;  // whatever was decided for this block, the rest fails
      saved_.insert(saved_.end(), conflict_.begin(), conflict_.end());
      exclusions_.push_back({i, excluded_at_[i]});
      if (model_.fixed[i] >= 0) {
        start_conflict();
        add(i);
        return false;
      }
      excluded_at_[i] = offset_[i];
    }
  }();
  if (!solved && !stopped_) {
    resolve(saved, exclusions);
    for (std::size_t k = states; k < states_.size(); ++k) refuted_[states_[k] % refuted_.size()] = states_[k];
  }
  if (!solved) rewind(changes, exclusions);
  saved_.resize(saved);
  states_.resize(states);
  return solved;
}

}  // namespace stowplan::packing::exact
