// The simulator's second pass, what it tells, and what must hold.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "simulator.hpp"

namespace stowplan::scheduling {

// --- the second pass: bytes --------------------------------------------------------------------------------

void Simulator::move(std::vector<Bytes>& changes, Index position, Bytes bytes) {
  changes[position] += bytes;
  moved_.emplace_back(&changes[position], bytes);
}

// Puts the ends of all storages' intervals into before_ and by_.
void Simulator::lay_out() {
  for (const auto& [change, bytes] : moved_) *change -= bytes;
  moved_.clear();
  transfers_.clear();
  packing_ = 0;
  for (Index s : storages_) {
    const Way way = way_[s];
    const Index end = way == Way::dropped ? near_[s] : needed_[s];
    if (end != end_[s]) move_end(s, end);
    if (way == Way::packed) lay_out_packed(s);
    if (is_swapped(s)) {
      if (next_need(s) != kNever) {
        transfers_.emplace_back(near_[s], s);
      } else {
        evict(s, kNever, kNever);
      }
    }
  }
  lay_out_swapped();
  lay_out_regained();
}

void Simulator::move_end(Index storage, Index end) {
  if (touched_[storage] != kNever) look_from(std::max(touched_[storage], std::min(end, end_[storage]) + 1));
  if (start_[storage] != kNever) {
    before_[end_[storage] + 1] += size_[storage];
    before_[end + 1] -= size_[storage];
  }
  end_[storage] = end;
}

void Simulator::lay_out_packed(Index s) {
  const Index next = next_need(s);
  if (next != unpacked_[s]) look_from(std::min(next, unpacked_[s]));
  unpacked_[s] = next;
  if (next == kNever) return;
  move(before_, near_[s] + 1, packed_[s] - size_[s]);
  move(by_, next, size_[s] - packed_[s]);
  packing_ += 2 * size_[s];
}

// One transfer at a time: evictions follow each other from the near uses on, fetches are as late as they may be. On
// demand, operators wait: after the near use for all that is going, before the next need for what comes.
void Simulator::lay_out_swapped() {
  stalls_ = 0.0;
  if (transfers_.empty()) return;
  const auto clock = clock_.begin();
  std::sort(transfers_.begin(), transfers_.end());
  double done = 0.0, waited = 0.0;
  for (auto& [near, s] : transfers_) {
    const double seconds = static_cast<double>(size_[s]) / rates_.swap;
    if (way_[s] == Way::on_demand) {
      waited += std::max(0.0, done - clock_[near + 1]) + 2 * seconds;
      done = clock_[near + 1];
      evict(s, near + 1, next_need(s));
      continue;
    }
    done = std::max(done, clock_[near + 1]) + seconds;
    returned_[s] = static_cast<Index>(std::lower_bound(clock + near + 1, clock + n_, done) - clock);  // out, for now
    near = -next_need(s);
  }
  std::sort(transfers_.begin(), transfers_.end());
  double start = std::numeric_limits<double>::infinity();
  for (const auto& [minus_next, s] : transfers_) {
    if (way_[s] == Way::on_demand) continue;
    const Index next = -minus_next;
    start = std::min(start, clock_[next]) - static_cast<double>(size_[s]) / rates_.swap;
    const auto into = static_cast<Index>(std::upper_bound(clock, clock + next + 1, start) - clock) - 1;
    const Index out = returned_[s];
    if (out < into) {
      evict(s, out, into);
    } else {
      evict(s, kNever, kNever);  // it would have to come back before it is gone
    }
  }
  stalls_ = waited + std::max(0.0, done - start);
  return_early();
}

void Simulator::evict(Index s, Index out, Index into) {
  if (out != out_[s] || into != into_[s]) look_from(touched_[s]);
  out_[s] = out;
  into_[s] = into;
  returned_[s] = kNever;
  if (out == kNever) return;
  move(before_, out, -size_[s]);
  move(before_, into, size_[s]);
}

// A value that a rerun writes while it is out stays from then on.
void Simulator::return_early() {
  for (const auto& [s, position] : rewritten_log_) {
    if (!is_swapped(s) || position < out_[s] || position >= into_[s] || returned_[s] != kNever) continue;
    returned_[s] = position;
    move(before_, into_[s], -size_[s]);
  }
}

// What is made again goes at the next drop, or after its last use.
void Simulator::lay_out_regained() {
  for (const auto& [s, position] : begun_log_) move(before_, drop_from(s, position) + 1, -size_[s]);
  for (const auto& [s, position] : own_log_) move(by_, position, size_[s]);
}

void Simulator::add_up() {
  score_ = {};
  Bytes alive = 0;
  auto next = reruns_.begin();
  for (Index p = 0; p < n_; ++p) {
    alive += before_[p];
    Bytes full = 0;
    if (next != reruns_.end() && next->position == p) {
      if (p >= look_from_) look_into(*next);
      full = alive + next->fullest;
      if (full > score_.peak) score_.peak = full, score_.place = p, score_.rerun = next->at;
      alive += next->gain;
      ++next;
    }
    alive += by_[p];
    const Bytes own = alive + workspace_[order_[p]];
    if (own > score_.peak) score_.peak = own, score_.place = p, score_.rerun = -1;
    live_[p] = std::max(full, own);
  }
  const double again = reruns_.empty() ? 0.0 : reruns_.back().seconds;
  score_.seconds = again + (static_cast<double>(packing_) / rates_.pack + stalls_);
}

// Of a storage that is not DROPPED: before the operator at a position and its reruns, where it was written before.
bool Simulator::is_present(Index s, Index position) const {
  if (position > needed_[s]) return false;
  return !is_swapped(s) || position < out_[s] || position >= into_[s] || returned_[s] < position;
}

void Simulator::look_into(Reruns& reruns) {
  ++look_;
  const Index p = reruns.position;
  const Lists::Range again{again_.data() + reruns.first, again_.data() + reruns.last};
  for (Index op : again) {
    for (Index v : reads_[op]) ++left_[v];
  }
  Bytes live = 0;
  reruns.gain = 0;
  reruns.fullest = std::numeric_limits<Bytes>::min();
  const std::uint8_t* fates = fates_.data() + reruns.fates;
  for (Index op : again) {
    for (Index v : reads_[op]) {
      const Index s = storage_[v];
      if (way_[s] == Way::packed && unpacked_[s] == p && opened_[s] != look_) {
        opened_[s] = look_;
        live += size_[s] - packed_[s];
      }
    }
    const Bytes copies = write_again(op, p, fates, live, reruns.gain);
    fates += writes_[op].size();
    if (live + copies + workspace_[op] > reruns.fullest) {
      reruns.fullest = live + copies + workspace_[op];
      reruns.at = op;
    }
    for (Index v : reads_[op]) --left_[v];
    for (Index v : reads_[op]) let_go(v, live);
    for (Index v : writes_[op]) let_go(v, live);
  }
}

// Returns the bytes of copies: of what is there already and is written all the same.
Bytes Simulator::write_again(Index op, Index position, const std::uint8_t* fates, Bytes& live, Bytes& gain) {
  Bytes copies = 0;
  for (Index v : writes_[op]) {
    const Index s = storage_[v];
    const bool dropped = way_[s] == Way::dropped;
    // Up to the near use it is there whatever its way was when the fates were noted.
    const int fate = position <= near_[s] ? 3 : *fates;
    ++fates;
    if (dropped ? fate & 1 : is_present(s, position)) {
      if (s == v) copies += size_[s];
    } else if (position > last_[s]) {
      temporary_[v] = 1;
      if (temporaries_[s]++ == 0) live += size_[s];
    } else if (stays_[s] != look_ && !(dropped && fate & 2)) {
      stays_[s] = look_;
      live += size_[s];
      gain += size_[s];
    }
  }
  return copies;
}

// A temporary value goes after its last reader among the reruns.
void Simulator::let_go(Index value, Bytes& live) {
  if (!temporary_[value] || left_[value] > 0) return;
  temporary_[value] = 0;
  if (--temporaries_[storage_[value]] == 0) live -= size_[storage_[value]];
}

// --- details -----------------------------------------------------------------------------------------------

void Simulator::released(std::vector<Index>& out) const {
  out.assign(static_cast<std::size_t>(m_), -1);
  for (Index v = 0; v < m_; ++v) {
    const Index s = storage_[v];
    if (writer_[v] < 0) continue;
    out[v] = needed_[s];
    if (way_[s] == Way::dropped) out[v] = made_[v] == kNever ? near_[s] : drop_from(s, made_[v]);
    if (out[v] >= n_) out[v] = -1;
  }
  for (const Reruns& reruns : reruns_) {
    for (Index i = reruns.first; i < reruns.last; ++i) {
      for (Index v : writes_[again_[i]]) {
        if (!result_[storage_[v]] && way_[storage_[v]] == Way::dropped) out[v] = std::max(out[v], reruns.position);
      }
    }
  }
}

// --- what must hold ----------------------------------------------------------------------------------------

void Simulator::check_invariants() const {
  const auto require = [](bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "stowplan: the simulator contradicts itself: %s\n", what);
    std::abort();
  };
  std::vector<Index> watched(static_cast<std::size_t>(n_), 0);
  Bytes stays = 0, ends = 0;
  for (Index s : storages_) {
    require(needed_[s] >= last_[s] && last_[s] >= near_[s], "a storage is needed for less than it is used");
    require(temporaries_[s] == 0, "a temporary value stays");
    if (result_[s] && start_[s] != kNever) stays += size_[s];
    if (way_[s] != Way::dropped) continue;
    for (Index op : users_[s]) watched[position_[op]] += position_[op] > near_[s];
  }
  require(watched == watched_, "a position is not watched");
  for (Index v = 0; v < m_; ++v) require(left_[v] == 0 && !temporary_[v], "a reader of reruns is left");
  for (Index p = 0; p <= n_; ++p) ends += before_[p] + by_[p];
  for (Index i = 0; i + 1 < static_cast<Index>(reruns_.size()); ++i) {
    require(reruns_[i].position < reruns_[i + 1].position && reruns_[i].last == reruns_[i + 1].first,
            "reruns out of order");
  }
  for (const Reruns& reruns : reruns_) ends += reruns.gain;
  require(ends == stays, "what is alive at the end is not the results");
}

}  // namespace stowplan::scheduling
