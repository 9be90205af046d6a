#include "instance.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace stowplan::packing {
namespace {

// One edge of a rectangle: ends sort before starts at the same tick.
struct Edge {
  Tick tick;
  std::int32_t item;  // free blocks first, then obstacles
  bool starts;
  bool operator<(const Edge& o) const {
    return tick != o.tick ? tick < o.tick : starts != o.starts ? o.starts : item < o.item;
  }
};

void look_up(Instance& in) {
  const auto k = static_cast<std::int32_t>(in.obstacles.size());
  std::vector<std::int32_t> order(k);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return in.obstacles[a].lower != in.obstacles[b].lower ? in.obstacles[a].lower > in.obstacles[b].lower : a < b;
  });
  // seen[c]: from column c up to the next key, the lowest obstacle met so far. Obstacles come from the top down.
  std::map<Column, std::int32_t> seen{{0, -1}, {in.columns, -1}};
  auto cut = [&](Column c) {
    auto it = seen.lower_bound(c);
    return it->first == c ? it : seen.emplace_hint(it, c, std::prev(it)->second);
  };
  in.sights.assign(k, {});
  for (auto o : order) {
    const auto start = static_cast<Column>(in.obstacles[o].start), end = static_cast<Column>(in.obstacles[o].end);
    auto from = cut(start);
    const auto to = cut(end);
    for (auto it = from; it != to; ++it) in.sights[o].push_back({it->first, std::next(it)->first, it->second});
    from->second = o;
    seen.erase(std::next(from), to);
  }
  for (auto it = seen.begin(); it->first < in.columns; ++it)
    in.floor.push_back({it->first, std::next(it)->first, it->second});
}

}  // namespace

Instance make_instance(const Problem& problem, const std::vector<std::int32_t>& free,
                       const std::vector<Obstacle>& obstacles) {
  const auto n = static_cast<std::int32_t>(free.size()), k = static_cast<std::int32_t>(obstacles.size());
  std::vector<Edge> edges;
  edges.reserve(2 * (static_cast<std::size_t>(n) + k));
  for (std::int32_t i = 0; i < n; ++i) {
    edges.push_back({problem.start[free[i]], i, true});
    edges.push_back({problem.end[free[i]], i, false});
  }
  for (std::int32_t i = 0; i < k; ++i) {
    edges.push_back({obstacles[i].start, n + i, true});
    edges.push_back({obstacles[i].end, n + i, false});
  }
  std::sort(edges.begin(), edges.end());

  Instance in;
  in.obstacles = obstacles;
  in.row.reserve(n);
  std::vector<Column> start(n), end(n);
  Column column = -1;
  bool started = false;  // the column is still taking starts
  for (const auto& edge : edges) {
    if (edge.starts && !started) ++column;
    started = edge.starts;
    const Column at = edge.starts ? column : column + 1;
    if (edge.item >= n) {
      (edge.starts ? in.obstacles[edge.item - n].start : in.obstacles[edge.item - n].end) = at;
    } else if (edge.starts) {
      start[edge.item] = at;
    } else {
      end[edge.item] = at;
    }
  }
  in.columns = column + 1;

  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return start[a] != start[b] ? start[a] < start[b] : free[a] < free[b];
  });
  in.start.reserve(n), in.end.reserve(n), in.size.reserve(n), in.alignment.reserve(n);
  for (auto i : order) {
    in.row.push_back(free[i]);
    in.start.push_back(start[i]);
    in.end.push_back(end[i]);
    in.size.push_back(problem.size[free[i]]);
    in.alignment.push_back(problem.alignment[free[i]]);
  }
  in.first.resize(in.columns + 1);
  std::int32_t at = 0;
  for (Column c = 0; c <= in.columns; ++c) {
    while (at < n && in.start[at] < c) ++at;
    in.first[c] = at;
  }
  look_up(in);
  return in;
}

bool is_plain(const Problem& p, std::size_t row) {
  const auto k = p.first_piece[row];
  return p.fixed[row] == kUnplaced && p.first_piece[row + 1] - k == 1 && p.piece_lower[k] == 0 &&
         p.piece_upper[k] == p.size[row] && p.piece_start[k] == p.start[row] && p.piece_end[k] == p.end[row];
}

void add_obstacles(const Problem& p, std::size_t row, Bytes offset, Tick start, Tick end,
                   std::vector<Obstacle>& obstacles) {
  for (auto k = p.first_piece[row]; k < p.first_piece[row + 1]; ++k) {
    const Tick from = std::max(start, p.piece_start[k]), to = std::min(end, p.piece_end[k]);
    if (from < to) obstacles.push_back({from, to, offset + p.piece_lower[k], offset + p.piece_upper[k]});
  }
}

Instance around_others(const Problem& p, const Bytes* offset, Bytes& top) {
  std::vector<std::int32_t> free;
  std::vector<Obstacle> obstacles;
  top = 0;
  for (std::size_t i = 0; i < p.n; ++i) {
    if (is_plain(p, i)) {
      free.push_back(static_cast<std::int32_t>(i));
    } else {
      add_obstacles(p, i, offset[i], std::numeric_limits<Tick>::min(), std::numeric_limits<Tick>::max(), obstacles);
      top = std::max(top, offset[i] + p.size[i]);
    }
  }
  return make_instance(p, free, obstacles);
}

std::vector<Bytes> crowding(const Instance& in) {
  std::size_t leaves = 1;
  while (leaves < static_cast<std::size_t>(in.columns)) leaves *= 2;
  std::vector<Bytes> most(2 * leaves, 0);  // a tree over the columns; the leaves first hold differences
  auto add = [&](Column start, Column end, Bytes size) {
    most[leaves + start] += size;
    if (end < in.columns) most[leaves + end] -= size;
  };
  for (std::int32_t k = 0; k < in.count(); ++k) add(in.start[k], in.end[k], in.size[k]);
  for (const auto& o : in.obstacles) add(static_cast<Column>(o.start), static_cast<Column>(o.end), o.upper - o.lower);
  for (Column c = 1; c < in.columns; ++c) most[leaves + c] += most[leaves + c - 1];
  for (std::size_t node = leaves - 1; node > 0; --node) most[node] = std::max(most[2 * node], most[2 * node + 1]);
  std::vector<Bytes> out(in.count(), 0);
  for (std::int32_t k = 0; k < in.count(); ++k) {
    for (std::size_t a = leaves + in.start[k], b = leaves + in.end[k]; a < b; a /= 2, b /= 2) {
      if (a % 2 != 0) out[k] = std::max(out[k], most[a++]);
      if (b % 2 != 0) out[k] = std::max(out[k], most[--b]);
    }
  }
  return out;
}

Bytes peak_of(const Problem& p, const Bytes* offset) {
  Bytes peak = 0;
  for (std::size_t i = 0; i < p.n; ++i) peak = std::max(peak, offset[i] + p.size[i]);
  return peak;
}

}  // namespace stowplan::packing
