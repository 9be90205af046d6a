#include "bounded_search.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <tuple>
#include <utility>

namespace stowplan::ordering {
namespace {

constexpr std::size_t kMostKeys = std::size_t{1} << 23;  // 128 MiB, or 256
constexpr int kChain = 6;  // operators beyond the first that a chain of safe moves may have

}  // namespace

// --- sets ----------------------------------------------------------------------------------------------------------

std::size_t Keys::slot(Key key) const {
  std::size_t at = key.low & (slots_.size() - 1);
  while (!(slots_[at] == key) && !(slots_[at] == Key{})) at = (at + 1) & (slots_.size() - 1);
  return at;
}

bool Keys::contains(Key key) const { return !slots_.empty() && slots_[slot(key)] == key; }

void Keys::insert(Key key) {
  if (2 * (size_ + 1) > slots_.size()) {
    std::vector<Key> old(std::max<std::size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Key& known : old) {
      if (!(known == Key{})) slots_[slot(known)] = known;
    }
  }
  Key& place = slots_[slot(key)];
  size_ += place == Key{};
  place = key;
}

void Keys::clear() {
  slots_.clear();
  size_ = 0;
}

// --- the search ----------------------------------------------------------------------------------------------------

BudgetSearch::BudgetSearch(const Graph& graph)
    : graph_(graph), state_(graph), lowest_(graph), side_(graph.count(), Side::kIn) {}

void BudgetSearch::begin(const std::vector<Op>& prefix, const std::vector<Op>& window) {
  state_.undo_to(0);
  for (const Op op : forbidden_) state_.allow(op);
  forbidden_.clear();
  for (const Op op : prefix) state_.run(op);
  goal_ = window.empty() ? static_cast<std::size_t>(graph_.count()) : prefix.size() + window.size();
  if (window.empty()) return;
  std::vector<char> allowed(graph_.count(), 0);
  for (const Op op : window) allowed[op] = 1;
  for (Op op = 0; op < graph_.count(); ++op) {
    if (allowed[op] || state_.ran(op)) continue;
    state_.forbid(op);
    forbidden_.push_back(op);
  }
}

Verdict BudgetSearch::decide(Bytes budget, std::int64_t most, const Stopwatch& watch, const std::vector<Op>& prefix,
                             const std::vector<Op>& window) {
  begin(prefix, window);
  failed_.clear();
  stack_.clear();
  budget_ = budget;
  next_budget_ = std::numeric_limits<Bytes>::max();
  looked_at_ = 0;
  settle();
  if (complete()) return Verdict::kFound;
  stack_.push_back({prefix.size(), state_.length(), state_.live(), {state_.key()}, choices()});
  while (!stack_.empty()) {
    Frame& frame = stack_.back();
    if (frame.next == frame.choices.size()) {
      fail();
      continue;
    }
    state_.undo_to(frame.length);
    state_.run(frame.choices[frame.next++]);
    settle();
    if (complete()) return Verdict::kFound;
    if (failed_.contains(state_.key())) continue;
    if (++looked_at_ > most || failed_.size() > kMostKeys) return Verdict::kUnknown;
    if (looked_at_ % 16 == 0 && watch.expired()) return Verdict::kUnknown;
    arrive();
    if (complete()) return Verdict::kFound;
  }
  return Verdict::kNone;
}

// Runs what may always run now: what frees as much as it starts, and what does so together with what it makes ready.
void BudgetSearch::settle() {
  for (bool changed = true; changed;) {
    changed = false;
    while (state_.run_if_free(budget_)) {
    }
    std::vector<Op> ready = state_.ready();
    std::sort(ready.begin(), ready.end());
    for (std::size_t i = 0; i < ready.size() && !changed; ++i) {
      changed = settle_chain(ready[i], state_.live(), kChain);
    }
  }
}

// Runs the operator, and after it some that each is made ready by the one before, until no more than `most` bytes are
// alive; if that cannot be, nothing. Between, only what has run so far can have run, so no closed set is lower.
bool BudgetSearch::settle_chain(Op op, Bytes most, int depth) {
  if (state_.step(op) > budget_) return false;
  state_.run(op);
  if (state_.live() <= most) return true;
  if (depth > 0) {
    std::vector<Op> made_ready;
    for (const Op next : graph_.after[op]) {
      if (state_.is_ready(next)) made_ready.push_back(next);
    }
    for (const Op next : made_ready) {
      if (settle_chain(next, most, depth - 1)) return true;
    }
  }
  state_.undo();
  return false;
}

// What fits, by what it adds; and into next_budget_ what does not.
std::vector<Op> BudgetSearch::choices() {
  std::vector<std::tuple<Bytes, std::size_t, Op>> found;
  for (std::size_t i = 0; i < state_.ready().size(); ++i) {
    const Op op = state_.ready()[i];
    if (state_.step(op) <= budget_)
      found.emplace_back(state_.net(op), state_.ready().size() - i, op);
    else
      next_budget_ = std::min(next_budget_, state_.step(op));
  }
  std::sort(found.begin(), found.end());
  std::vector<Op> ops;
  for (const auto& choice : found) ops.push_back(std::get<2>(choice));
  return ops;
}

// The search has come to a set that is not known to fail: a safe move from a set below it, or one more frame.
void BudgetSearch::arrive() {
  for (;;) {
    const auto lower = std::lower_bound(stack_.begin(), stack_.end(), state_.live(),
                                        [](const Frame& frame, Bytes live) { return frame.live < live; });
    if (lower == stack_.end()) {
      const std::size_t from = stack_.back().length;
      stack_.push_back({from, state_.length(), state_.live(), {state_.key()}, choices()});
      return;
    }
    if (sink(lower->length)) {
      settle();
      if (complete()) return;
      continue;
    }
    // All frames from there on have one fate.
    lower->length = state_.length();
    lower->live = state_.live();
    lower->keys.push_back(state_.key());
    for (auto frame = lower + 1; frame != stack_.end(); ++frame) {
      lower->keys.insert(lower->keys.end(), frame->keys.begin(), frame->keys.end());
    }
    lower->choices = failed_.contains(state_.key()) ? std::vector<Op>{} : choices();
    lower->next = 0;
    stack_.erase(lower + 1, stack_.end());
    return;
  }
}

// Goes to the closed set with the fewest bytes alive that has at least the first `from` operators and at most those
// that have run; false if that is the set of all of these.
bool BudgetSearch::sink(std::size_t from) {
  const std::vector<Op> path(state_.order().begin() + static_cast<std::ptrdiff_t>(from), state_.order().end());
  bool alone = true;  // each waits for the one before: all closed sets between were on the way, and had more alive
  for (std::size_t i = 1; i < path.size() && alone; ++i) {
    const auto before = graph_.before[path[i]];
    alone = std::find(before.begin(), before.end(), path[i - 1]) != before.end();
  }
  if (alone) return false;
  const Bytes here = state_.live();
  state_.undo_to(from);
  for (Op op = 0; op < graph_.count(); ++op) side_[op] = state_.ran(op) ? Side::kIn : Side::kOut;
  for (const Op op : path) side_[op] = Side::kFree;
  const Bytes least = state_.live() + lowest_.change(path, side_);
  assert(least <= here);
  const std::vector<Op> chosen = least < here ? lowest_.chosen(path) : path;
  for (const Op op : chosen) state_.run(op);
  assert(state_.live() == least);
  return least < here;
}

void BudgetSearch::fail() {
  for (const Key key : stack_.back().keys) failed_.insert(key);
  state_.undo_to(stack_.back().from);
  stack_.pop_back();
}

}  // namespace stowplan::ordering
