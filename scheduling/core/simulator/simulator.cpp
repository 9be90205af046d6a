#include "simulator.hpp"

#include <algorithm>
#include <cstddef>

namespace stowplan::scheduling {

namespace {

template <typename T>
std::vector<Index> narrow(const T* column, Index n) {
  return std::vector<Index>(column, column + n);
}

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// Rows of what `fill(i, row)` adds to each, ascending, each once.
template <class Fill>
Lists unique_rows(Index n, Fill&& fill) {
  std::vector<std::vector<Index>> rows(at(n));
  for (Index i = 0; i < n; ++i) {
    fill(i, rows[i]);
    std::sort(rows[i].begin(), rows[i].end());
    rows[i].erase(std::unique(rows[i].begin(), rows[i].end()), rows[i].end());
  }
  return Lists(rows);
}

}  // namespace

// --- the graph ---------------------------------------------------------------------------------------------

Simulator::Simulator(const Graph& graph, Rates rates)
    : n_(static_cast<Index>(graph.n)),
      m_(static_cast<Index>(graph.m)),
      rates_(rates),
      phase_(narrow(graph.phase, n_)),
      storage_(narrow(graph.storage, m_)),
      held_(narrow(graph.held, m_)),
      writer_(at(m_), -1),
      first_phase_(at(m_), -1),
      workspace_(graph.workspace, graph.workspace + n_),
      size_(at(m_), 0),
      packed_(graph.packed, graph.packed + m_),
      seconds_(graph.seconds, graph.seconds + n_),
      result_(at(m_), 0) {
  const auto values_of = [](const Rows& rows) {
    return [&rows](Index op, std::vector<Index>& row) {
      for (auto k = rows.first[op]; k < rows.first[op + 1]; ++k) row.push_back(static_cast<Index>(rows.index[k]));
    };
  };
  reads_ = unique_rows(n_, values_of(graph.reads));
  writes_ = unique_rows(n_, values_of(graph.writes));
  for (Index op = n_; op-- > 0;) {
    for (Index v : writes_[op]) {
      writer_[v] = op;
      first_phase_[storage_[v]] = phase_[op];
    }
  }
  for (Index v = 0; v < m_; ++v) {
    const Index s = storage_[v];
    if (s == v) storages_.push_back(v);
    if (held_[v] >= 0) held_values_.push_back(v);
    if (graph.kept[v] || graph.resident[s]) result_[s] = 1;
    if (!graph.resident[s] && s == v) size_[v] = graph.size[v];
  }
  makes_ = unique_rows(n_, [this](Index op, std::vector<Index>& row) {
    for (Index v : writes_[op]) row.push_back(storage_[v]);
  });
  uses_ = unique_rows(n_, [this](Index op, std::vector<Index>& row) {
    for (Index v : reads_[op]) row.push_back(storage_[v]);
    row.insert(row.end(), makes_[op].begin(), makes_[op].end());
  });
  users_ = uses_.transposed(m_);
  spans_.resize(at(m_));
  for (auto* column : {&order_, &position_}) column->resize(at(n_));
  goes_.assign(users_.numbers().size(), 0);
  placed_.resize(users_.numbers().size());
  drops_.resize(at(m_));
  for (auto* column : {&start_, &near_, &last_, &next_, &needed_, &touched_, &asked_, &made_, &begun_, &end_,
                       &unpacked_, &out_, &into_, &returned_}) {
    column->resize(at(m_));
  }
  for (auto* column : {&left_, &temporaries_}) column->assign(at(m_), 0);
  for (auto* column : {&stays_, &opened_}) column->assign(at(m_), 0);
  mark_.assign(at(n_), 0);
  temporary_.assign(at(m_), 0);
  way_.assign(at(m_), Way::kept);
  live_.resize(at(n_));
  std::vector<std::int64_t> recorded(at(n_));
  for (Index i = 0; i < n_; ++i) recorded[i] = i;
  set_order(recorded.data());
}

// --- the order and the ways --------------------------------------------------------------------------------

void Simulator::set_order(const std::int64_t* order) {
  clock_.assign(at(n_) + 1, 0.0);
  for (Index p = 0; p < n_; ++p) {
    const Index op = static_cast<Index>(order[p]);
    order_[p] = op;
    position_[op] = p;
    clock_[p + 1] = clock_[p] + seconds_[op];
  }
  find_uses();
  reruns_.clear();
  again_.clear();
  fates_.clear();
  noted_.clear();
  for (auto* log : {&begun_log_, &own_log_, &rewritten_log_}) log->clear();
  std::copy(last_.begin(), last_.end(), needed_.begin());
  for (auto* column : {&touched_, &asked_, &made_, &begun_, &unpacked_, &out_, &into_, &returned_}) {
    std::fill(column->begin(), column->end(), kNever);
  }
  watched_.assign(at(n_), 0);
  for (Index s : storages_) {
    if (way_[s] == Way::dropped) watch(s, 1);
  }
  lay_out_order();
  rerun_from_ = look_from_ = 0;
}

void Simulator::find_uses() {
  for (Index s : storages_) spans_[s] = {first_phase_[s], kNever, -1, -1, -1};
  for (Index s = 0; s < m_; ++s) {
    for (Index use = first_use(s); use < first_use(s + 1); ++use) placed_[use] = {position_[user(use)], use};
    std::sort(placed_.begin() + first_use(s), placed_.begin() + first_use(s + 1));
  }
  for (Index p = 0; p < n_; ++p) {
    const Index op = order_[p], phase = phase_[op];
    for (Index s : uses_[op]) {
      Span& span = spans_[s];
      span.last = p;
      if (phase == span.phase) span.near = p;
    }
    for (Index s : makes_[op]) spans_[s].start = std::min(spans_[s].start, p);
  }
  for (Index v : held_values_) {
    Span& span = spans_[storage_[v]];
    span.held = std::max(span.held, position_[held_[v]]);
  }
  for (Index s : storages_) {
    Span& span = spans_[s];
    span.near = std::max(span.near, span.held);
    start_[s] = span.start;
    last_[s] = result_[s] ? n_ : std::max(span.last, span.near);
    find_drops(s);
  }
}

// The uses after which a storage goes, where it is DROPPED: those named, unless the program holds it, up to the near
// one of its phase; and the next use after the first of them.
void Simulator::find_drops(Index storage) {
  const Span& span = spans_[storage];
  std::vector<Index>& drops = drops_[storage];
  drops.clear();
  const auto *use = placed(storage), *end = use + use_count(storage);
  for (; use != end; ++use) {
    if (goes_[use->second] && use->first >= span.held && use->first < span.near) drops.push_back(use->first);
  }
  drops.push_back(span.near);
  near_[storage] = drops.front();
  use = std::upper_bound(placed(storage), end, std::pair<Index, Index>(near_[storage], kNever));
  next_[storage] = use == end ? kNever : use->first;
}

void Simulator::lay_out_order() {
  before_.assign(at(n_) + 2, 0);
  by_.assign(at(n_) + 2, 0);
  moved_.clear();
  for (Index s : storages_) {
    end_[s] = last_[s];
    if (start_[s] == kNever) continue;
    by_[start_[s]] += size_[s];
    before_[end_[s] + 1] -= size_[s];
  }
}

void Simulator::watch(Index storage, Index more) {
  for (Index op : users_[storage]) {
    if (position_[op] > near_[storage]) watched_[position_[op]] += more;
  }
}

void Simulator::set_way(Index storage, Way way) {
  const Way old = way_[storage];
  if (old == way) return;
  way_[storage] = way;
  const Index seen = std::min(next_[storage], touched_[storage]);
  look_from(seen);
  if (old == Way::dropped) watch(storage, -1);
  if (way == Way::dropped) watch(storage, 1);
  if (old == Way::dropped || way == Way::dropped) rerun_from_ = std::min(rerun_from_, seen);
}

void Simulator::set_goes(Index storage, Index use, bool goes) {
  if (this->goes(use) == goes) return;
  goes_[use] = goes;
  const bool dropped = way_[storage] == Way::dropped;
  if (dropped) watch(storage, -1);
  const Index before = near_[storage];
  find_drops(storage);
  if (dropped) watch(storage, 1);
  // What was noted of positions after the near use is noted from the nearer one on.
  if (!dropped && before == near_[storage]) return;
  const Index from = std::min({before, near_[storage], position_[user(use)]}) + 1;
  look_from(from);
  rerun_from_ = std::min(rerun_from_, from);
}

void Simulator::set_goes_after(Index storage, Index op) {
  const Lists::Range users = users_[storage];
  const Index* user = std::lower_bound(users.begin(), users.end(), op);
  if (user != users.end() && *user == op) {
    set_goes(storage, first_use(storage) + static_cast<Index>(user - users.begin()), true);
  }
}

const Score& Simulator::evaluate() {
  if (rerun_from_ < n_) {
    look_from(rerun_from_);
    forget_from(rerun_from_);
    for (Index p = rerun_from_; p < n_; ++p) {
      if (watched_[p] == 0) continue;
      find_reruns(p);
      for (Index v : writes_[order_[p]]) {
        if (way_[storage_[v]] == Way::dropped && p > near_[storage_[v]]) make_again(v, p, true);
      }
    }
  }
  lay_out();
  add_up();
  rerun_from_ = look_from_ = kNever;
#ifdef STOWPLAN_DEBUG
  check_invariants();
#endif
  return score_;
}

// --- the first pass: what runs again -----------------------------------------------------------------------

void Simulator::forget_from(Index position) {
  for (; !noted_.empty() && *noted_.back().place >= position; noted_.pop_back()) {
    *noted_.back().place = noted_.back().before;
  }
  for (auto* log : {&begun_log_, &own_log_, &rewritten_log_}) {
    while (!log->empty() && log->back().position >= position) log->pop_back();
  }
  while (!reruns_.empty() && reruns_.back().position >= position) {
    again_.resize(at(reruns_.back().first));
    fates_.resize(at(reruns_.back().fates));
    reruns_.pop_back();
  }
}

// The first drop from a position on; the last use where there is none.
Index Simulator::drop_from(Index storage, Index position) const {
  const std::vector<Index>& drops = drops_[storage];
  const auto drop = std::lower_bound(drops.begin(), drops.end(), position);
  return drop == drops.end() ? last_[storage] : *drop;
}

bool Simulator::is_there(Index value, Index position) const {
  const Index s = storage_[value];
  if (way_[s] != Way::dropped || position <= near_[s]) return true;
  return made_[value] < position && position <= drop_from(s, made_[value]);
}

// As is_there(), for a DROPPED storage.
bool Simulator::is_storage_there(Index storage, Index position) const {
  return position <= near_[storage] || (begun_[storage] < position && position <= drop_from(storage, begun_[storage]));
}

// A value of a DROPPED storage is made after the near use, and stays: by a rerun, or by the operator itself.
void Simulator::make_again(Index value, Index position, bool by_itself) {
  const Index s = storage_[value];
  if (is_there(value, position) || made_[value] == position) return;
  if (begun_[s] != position && !is_storage_there(s, position)) {
    begun_log_.push_back({s, position});
    note(begun_[s], position);
    if (by_itself) own_log_.push_back({s, position});
  }
  note(made_[value], position);
}

void Simulator::find_reruns(Index position) {
  stack_.clear();
  for (Index v : reads_[order_[position]]) {
    if (!is_there(v, position)) stack_.push_back(writer_[v]);
  }
  if (stack_.empty()) return;
  const auto first = static_cast<std::ptrdiff_t>(again_.size());
  ++epoch_;
  while (!stack_.empty()) {
    const Index op = stack_.back();
    stack_.pop_back();
    if (op < 0 || mark_[op] == epoch_) continue;
    mark_[op] = epoch_;
    again_.push_back(op);
    for (Index v : reads_[op]) {
      if (is_there(v, position)) {
        need(storage_[v], position);
      } else {
        stack_.push_back(writer_[v]);
      }
    }
  }
  std::sort(again_.begin() + first, again_.end(), [this](Index a, Index b) { return position_[a] < position_[b]; });
  const auto fates = static_cast<Index>(fates_.size());
  double seconds = reruns_.empty() ? 0.0 : reruns_.back().seconds;
  for (auto i = again_.begin() + first; i != again_.end(); ++i) {
    seconds += seconds_[*i];
    note_rerun(*i, position);
  }
  reruns_.push_back({position, static_cast<Index>(first), static_cast<Index>(again_.size()), fates, seconds});
}

// A storage that is there is read by a rerun.
void Simulator::need(Index storage, Index position) {
  if (position > needed_[storage]) note(needed_[storage], position);
  if (position > near_[storage] && asked_[storage] == kNever) note(asked_[storage], position);
}

void Simulator::note_rerun(Index op, Index position) {
  const auto touch = [&](Index s) {
    if (position > near_[s] && touched_[s] == kNever) note(touched_[s], position);
  };
  for (Index v : reads_[op]) touch(storage_[v]);
  for (Index v : writes_[op]) {
    const Index s = storage_[v];
    touch(s);
    const bool dropped = way_[s] == Way::dropped;
    const int fate = dropped ? (is_there(v, position) ? 1 : 0) | (is_storage_there(s, position) ? 2 : 0) : 0;
    fates_.push_back(static_cast<std::uint8_t>(fate));
    if (position <= near_[s] || position > last_[s]) continue;
    if (dropped) {
      make_again(v, position, false);
    } else if (next_[s] != kNever) {
      rewritten_log_.push_back({s, position});
    }
  }
}

Index Simulator::next_need(Index storage) const { return std::min(next_[storage], asked_[storage]); }

}  // namespace stowplan::scheduling
