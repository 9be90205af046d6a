#include "partial_order.hpp"

#include <cassert>

#include "random.hpp"

namespace stowplan::ordering {
namespace {

void toggle(Key& key, Op op) {
  Random random(static_cast<std::uint64_t>(op) * 0x2545f4914f6cdd1du + 0x9e3779b97f4a7c15u);
  key.low ^= random.next();
  key.high ^= random.next();
}

}  // namespace

State::State(const Graph& graph)
    : graph_(&graph),
      place_(graph.count(), kWaiting),
      waiting_(graph.count()),
      alloc_(graph.count(), 0),
      free_(graph.count(), 0),
      started_(graph.storages(), 0),
      left_(graph.storages()),
      rest_(graph.storages(), 0) {
  for (Row s = 0; s < graph.storages(); ++s) {
    if (graph.from_start[s]) live_ += graph.size[s];
    for (const Op op : graph.starts[s]) alloc_[op] += graph.size[s];
    left_[s] = graph.ends[s].size();
    for (const Op op : graph.ends[s]) rest_[s] += op;
    if (left_[s] == 1) free_[rest_[s]] += graph.size[s];
  }
  for (Op op = 0; op < graph.count(); ++op) {
    waiting_[op] = graph.before[op].size();
    if (waiting_[op] == 0) make_ready(op);
  }
}

void State::take_from_ready(Op op) {
  const Op last = ready_.back();
  ready_[place_[op]] = last;
  place_[last] = place_[op];
  ready_.pop_back();
}

void State::run(Op op) {
  const Graph& g = *graph_;
  live_ += alloc_[op];
  for (const Row s : g.starting[op]) {
    if (started_[s]++ > 0 || g.starts[s].size() == 1) continue;
    for (const Op other : g.starts[s]) {
      if (other != op) alloc_[other] -= g.size[s];
    }
  }
  for (const Row s : g.ending[op]) {
    rest_[s] -= op;
    if (--left_[s] == 0) live_ -= g.size[s];
    if (left_[s] == 1) free_[rest_[s]] += g.size[s];
  }
  take_from_ready(op);
  place_[op] = kRan;
  for (const Op next : g.after[op]) {
    if (--waiting_[next] == 0) make_ready(next);
  }
  order_.push_back(op);
  toggle(key_, op);
#ifdef STOWPLAN_DEBUG
  assert(consistent());
#endif
}

bool State::run_if_free(Bytes budget) {
  const std::size_t before = length();
  for (std::size_t i = 0; i < ready_.size();) {
    const Op op = ready_[i];
    if (net(op) <= 0 && step(op) <= budget)
      run(op);  // and another takes its place
    else
      ++i;
  }
  return length() > before;
}

void State::undo() {
  const Graph& g = *graph_;
  const Op op = order_.back();
  order_.pop_back();
  toggle(key_, op);
  for (const Op next : g.after[op]) {
    if (waiting_[next]++ == 0) {
      take_from_ready(next);
      place_[next] = kWaiting;
    }
  }
  make_ready(op);
  for (const Row s : g.ending[op]) {
    if (left_[s] == 1) free_[rest_[s]] -= g.size[s];
    if (left_[s]++ == 0) live_ += g.size[s];
    rest_[s] += op;
  }
  for (const Row s : g.starting[op]) {
    if (--started_[s] > 0 || g.starts[s].size() == 1) continue;
    for (const Op other : g.starts[s]) {
      if (other != op) alloc_[other] += g.size[s];
    }
  }
  live_ -= alloc_[op];
#ifdef STOWPLAN_DEBUG
  assert(consistent());
#endif
}

void State::forbid(Op op) {
  if (waiting_[op]++ == 0) {
    take_from_ready(op);
    place_[op] = kWaiting;
  }
}

void State::allow(Op op) {
  if (--waiting_[op] == 0) make_ready(op);
}

bool State::consistent() const {
  const Graph& g = *graph_;
  Bytes live = 0;
  for (Row s = 0; s < g.storages(); ++s) {
    bool started = g.from_start[s] != 0;
    for (const Op op : g.starts[s]) started = started || ran(op);
    std::int32_t left = 0;
    for (const Op op : g.ends[s]) left += !ran(op);
    if (left != left_[s]) return false;
    if (started && (left > 0 || g.to_end[s])) live += g.size[s];
  }
  for (const Op op : ready_) {
    if (waiting_[op] != 0 || ready_[place_[op]] != op) return false;
    Bytes alloc = 0, free = 0;
    for (const Row s : g.starting[op]) alloc += started_[s] == 0 ? g.size[s] : 0;
    for (const Row s : g.ending[op]) free += left_[s] == 1 ? g.size[s] : 0;
    if (alloc != alloc_[op] || free != free_[op]) return false;
  }
  return live == live_;
}

}  // namespace stowplan::ordering
