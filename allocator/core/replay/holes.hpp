// The free ranges of a heap or an arena, by address, and by state and size: what a best-fit allocator keeps.
//
//     addresses   |####.over..#####~~17~~|~~18~~####      |     # taken; 17, 18: a state, of what may still use them
//                                                none
//
// An arena, and the host's heap, know one state alone: over, which is anybody's.
//
// Neighbours of one state are one hole, which keeps the larger of their numbers. Each range that is taken holds a
// promise of a node, so that to give it back finds memory of the host's.
//
// O(log holes) to find the smallest hole of a state that has room, to take its beginning, and to give. O(holes) to go
// through runs of holes that touch. Not synchronized. What throws (std::bad_alloc) has changed nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plan.hpp"

namespace stowplan::allocator {

class Holes {
 public:
  using State = std::uint64_t;
  static constexpr State kNone = 0, kArena = 1, kOver = 2;  // no memory; nor an arena's addresses; anybody's
  static constexpr bool has_memory(State state) { return state >= kOver; }
  struct Part {
    Bytes begin, end;
    State state = kNone;
    std::uint64_t number = 0;
  };
  using BySize = std::set<std::tuple<State, Bytes, Bytes>>;  // state, size, begin
  struct Hole {
    Bytes end;
    State state;
    std::uint64_t number;
    BySize::const_iterator by_size;
  };
  using ByAddress = std::map<Bytes, Hole>;
  using Iterator = ByAddress::const_iterator;

  // Makes sure of so many nodes more, for puts and cuts to come.
  void promise(std::size_t count) {
    while (spare_.size() < promised_ + count) {
      if (spare_.capacity() <= made_) spare_.reserve(2 * made_ + 16);
      ByAddress by_address{{0, {}}};
      BySize by_size{{0, 0, 0}};
      spare_.emplace_back(by_address.extract(by_address.begin()), by_size.extract(by_size.begin()));
      ++made_;
    }
    promised_ += count;
  }
  void need_not(std::size_t count) noexcept { promised_ -= count; }

  // By a promise: a range that was taken is a hole.
  void put(const Part& part) noexcept {
    --promised_;
    join(part);
  }
  // By a promise: takes all holes out of a range, and tells them. `parts` has room for them, or is null.
  void cut(Bytes begin, Bytes end, std::vector<Part>* parts) noexcept {
    const auto first = at_or_after(begin);
    --promised_;
    for (auto hole = first; hole != by_address_.end() && hole->first < end;) {
      const Part part{hole->first, hole->second.end, hole->second.state, hole->second.number};
      remove(hole++);  // `hole` is behind it now
      if (parts != nullptr)
        parts->push_back({std::max(begin, part.begin), std::min(end, part.end), part.state, part.number});
      if (part.begin < begin) insert({part.begin, begin, part.state, part.number}, hole);
      if (end < part.end) insert({end, part.end, part.state, part.number}, hole);
    }
  }
  // The holes of one state in a range are of another one.
  void change(Bytes begin, Bytes end, State from, State to) {
    std::vector<Part> parts;
    for (auto hole = at_or_after(begin); hole != by_address_.end() && hole->first < end; ++hole) {
      if (hole->second.state != from) continue;
      parts.push_back({std::max(begin, hole->first), std::min(end, hole->second.end), to, 0});
    }
    promise(2 * parts.size());
    for (const Part& part : parts) {
      cut(part.begin, part.end, nullptr);
      put(part);
    }
  }
  // The smallest hole of a state that has room; end(): there is none.
  Iterator smallest(State state, Bytes size) const {
    const auto at = by_size_.lower_bound({state, size, 0});
    return at != by_size_.end() && std::get<0>(*at) == state ? by_address_.find(std::get<2>(*at)) : by_address_.end();
  }
  // Takes the beginning of a hole.
  void take(Iterator hole, Bytes size) noexcept {
    const Part part{hole->first, hole->second.end, hole->second.state, hole->second.number};
    const auto next = std::next(hole);
    remove(hole);
    if (part.begin + size < part.end) insert({part.begin + size, part.end, part.state, part.number}, next);
  }
  // The holes of a state up to a number are anybody's.
  void end_uses(State state, std::uint64_t number) {
    std::vector<Bytes> over;
    each_of(state, [&](Bytes begin, Bytes) {
      if (by_address_.find(begin)->second.number <= number) over.push_back(begin);
      return true;
    });
    for (const Bytes begin : over) {
      const auto hole = by_address_.find(begin);
      const Part part{begin, hole->second.end, kOver, 0};
      remove(hole);
      join(part);
    }
  }
  // Calls `f(begin, end)` for the holes of a state, or those of at least `size`, the smallest first, until it is false.
  template <class F>
  void each_of(State state, F&& f, Bytes size = 0) const {
    for (auto at = by_size_.lower_bound({state, size, 0}); at != by_size_.end() && std::get<0>(*at) == state; ++at) {
      if (!f(std::get<2>(*at), std::get<2>(*at) + std::get<1>(*at))) return;
    }
  }
  // The same, the largest first.
  template <class F>
  void each_down(State state, F&& f) const {
    for (auto at = by_size_.lower_bound({state + 1, 0, 0}); at != by_size_.begin();) {
      --at;
      const auto [its, size, begin] = *at;
      if (its != state || !f(begin, begin + size)) return;
    }
  }
  bool has(State state) const {
    const auto at = by_size_.lower_bound({state, 0, 0});
    return at != by_size_.end() && std::get<0>(*at) == state;
  }
  // Calls `f(first, last)` for runs of holes that touch, in states that `is_fit` accepts; `last` is behind the run.
  template <class IsFit, class F>
  void each_run(IsFit&& is_fit, F&& f) const {
    for (auto hole = by_address_.begin(); hole != by_address_.end();) {
      const auto first = hole;
      Bytes end = hole->first;
      for (; hole != by_address_.end() && is_fit(hole->second.state); ++hole) {
        if (hole != first && (hole->first != end || borders_.count(end) != 0)) break;
        end = hole->second.end;
      }
      if (hole == first)
        ++hole;
      else
        f(first, hole);
    }
  }
  Iterator begin() const { return by_address_.begin(); }
  Iterator end() const { return by_address_.end(); }
  // The first hole that ends behind an address.
  Iterator at_or_after(Bytes address) const {
    auto hole = by_address_.upper_bound(address);
    if (hole != by_address_.begin() && std::prev(hole)->second.end > address) --hole;
    return hole;
  }

  // Bytes of holes in a range.
  Bytes within(Bytes begin, Bytes end) const {
    Bytes bytes = 0;
    for (auto hole = at_or_after(begin); hole != this->end() && hole->first < end; ++hole) {
      bytes += std::min(end, hole->second.end) - std::max(begin, hole->first);
    }
    return bytes;
  }

  // Holes on both sides of a border stay apart.
  void add_border(Bytes address) { borders_.insert(address); }
  void remove_border(Bytes address) noexcept { borders_.erase(address); }

 private:
  using Nodes = std::pair<ByAddress::node_type, BySize::node_type>;

  void join(Part part) noexcept {
    const auto touches = [&](Iterator hole, Bytes address) {
      return hole->second.state == part.state && borders_.count(address) == 0;
    };
    auto next = by_address_.lower_bound(part.begin);
    if (next != by_address_.end() && next->first == part.end && touches(next, part.end)) {
      part.end = next->second.end;
      part.number = std::max(part.number, next->second.number);
      remove(next++);
    }
    if (next != by_address_.begin()) {
      const auto before = std::prev(next);
      if (before->second.end == part.begin && touches(before, part.begin)) {
        part.begin = before->first;
        part.number = std::max(part.number, before->second.number);
        remove(before);
      }
    }
    insert(part, next);
  }
  void insert(const Part& part, Iterator next) noexcept {
    Nodes nodes = std::move(spare_.back());
    spare_.pop_back();
    nodes.first.key() = part.begin;
    nodes.second.value() = {part.state, part.end - part.begin, part.begin};
    const auto by_size = by_size_.insert(std::move(nodes.second)).position;
    nodes.first.mapped() = {part.end, part.state, part.number, by_size};
    by_address_.insert(next, std::move(nodes.first));
  }
  void remove(Iterator hole) noexcept {
    auto by_size = by_size_.extract(hole->second.by_size);
    spare_.emplace_back(by_address_.extract(hole), std::move(by_size));  // there is room for all that were made
  }

  ByAddress by_address_;
  BySize by_size_;
  std::set<Bytes> borders_;
  std::vector<Nodes> spare_;
  std::size_t promised_ = 0, made_ = 0;
};

}  // namespace stowplan::allocator
