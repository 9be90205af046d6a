#include "model.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace stowplan::packing::exact {
namespace {

bool is_empty(const Problem& problem, std::int64_t piece) {
  return problem.piece_start[piece] >= problem.piece_end[piece] ||
         problem.piece_lower[piece] >= problem.piece_upper[piece];
}

// A fixed offset is a multiple of the alignment already.
Bytes demanded_alignment(const Problem& problem, std::int32_t block) {
  return problem.fixed[block] == kUnplaced ? problem.alignment[block] : 1;
}

Bytes common_unit(const Problem& problem, const std::vector<std::int32_t>& blocks) {
  Bytes unit = 0;
  for (const std::int32_t b : blocks) {
    unit = std::gcd(unit, problem.size[b]);
    if (problem.fixed[b] != kUnplaced) unit = std::gcd(unit, problem.fixed[b]);
    for (std::int64_t p = problem.first_piece[b]; p < problem.first_piece[b + 1]; ++p) {
      unit = std::gcd(unit, problem.piece_lower[p]);
      unit = std::gcd(unit, problem.piece_upper[p]);
    }
  }
  // An alignment that divides every size is met by all multiples of the unit. The others refine it.
  const Bytes sizes = unit;
  for (const std::int32_t b : blocks) {
    const Bytes alignment = demanded_alignment(problem, b);
    if (sizes % alignment != 0) unit = std::gcd(unit, alignment);
  }
  return unit;
}

// Sets the pieces' section ranges. A section is kept when it neither lacks a start at its beginning nor an end at its
// end: otherwise its live set is part of a neighbour's.
void find_sections(const Problem& problem, const std::vector<std::int64_t>& origin, Model& model) {
  std::vector<Tick> starts;
  std::vector<Tick> ends;
  for (const std::int64_t p : origin) {
    starts.push_back(problem.piece_start[p]);
    ends.push_back(problem.piece_end[p]);
  }
  std::sort(starts.begin(), starts.end());
  std::sort(ends.begin(), ends.end());
  std::vector<Tick> kept;  // one moment within each section: its last start
  std::size_t e = 0;
  for (std::size_t s = 0; s < starts.size(); ++s) {
    const bool last = s + 1 == starts.size();
    while (ends[e] <= starts[s]) ++e;
    if (last || ends[e] <= starts[s + 1]) kept.push_back(starts[s]);
  }
  model.sections = static_cast<std::int32_t>(kept.size());
  for (std::size_t k = 0; k < origin.size(); ++k) {
    const auto first = std::lower_bound(kept.begin(), kept.end(), problem.piece_start[origin[k]]);
    const auto past = std::lower_bound(kept.begin(), kept.end(), problem.piece_end[origin[k]]);
    model.pieces[k].first = static_cast<std::int32_t>(first - kept.begin());
    model.pieces[k].last = static_cast<std::int32_t>(past - kept.begin()) - 1;
  }
}

void find_conflicts(Model& model) {
  std::vector<std::pair<std::int32_t, std::int32_t>> order;  // piece, block
  for (std::int32_t i = 0; i < model.n; ++i) {
    for (std::int32_t p = model.first_piece[i]; p < model.first_piece[i + 1]; ++p) order.emplace_back(p, i);
  }
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return std::tie(model.pieces[a.first].first, a) < std::tie(model.pieces[b.first].first, b);
  });
  std::vector<std::vector<Conflict>> lists(static_cast<std::size_t>(model.n));
  std::vector<std::pair<std::int32_t, std::int32_t>> alive;
  for (const auto& [p, i] : order) {
    const Piece& piece = model.pieces[p];
    const auto over = [&](const auto& other) { return model.pieces[other.first].last < piece.first; };
    alive.erase(std::remove_if(alive.begin(), alive.end(), over), alive.end());
    for (const auto& [q, k] : alive) {
      if (k == i) continue;
      const Piece& other = model.pieces[q];
      lists[i].push_back({k, piece.upper - other.lower, other.upper - piece.lower});
      lists[k].push_back({i, other.upper - piece.lower, piece.upper - other.lower});
    }
    alive.emplace_back(p, i);
  }
  model.first_conflict.assign(1, 0);
  for (std::vector<Conflict>& list : lists) {
    std::sort(list.begin(), list.end(), [](const Conflict& a, const Conflict& b) { return a.block < b.block; });
    for (std::size_t c = 0; c < list.size(); ++c) {
      if (c == 0 || list[c].block != list[c - 1].block) {
        model.conflicts.push_back(list[c]);
      } else {  // the same two blocks meet again in other pieces
        model.conflicts.back().above = std::max(model.conflicts.back().above, list[c].above);
        model.conflicts.back().below = std::max(model.conflicts.back().below, list[c].below);
      }
    }
    model.first_conflict.push_back(static_cast<std::int32_t>(model.conflicts.size()));
  }
}

void find_twins(Model& model) {
  std::map<std::vector<std::int64_t>, std::int32_t> latest;
  model.next_twin.assign(static_cast<std::size_t>(model.n), -1);
  for (std::int32_t i = 0; i < model.n; ++i) {
    if (model.fixed[i] != kUnplaced) continue;
    std::vector<std::int64_t> key = {model.size[i], model.alignment[i]};
    for (std::int32_t p = model.first_piece[i]; p < model.first_piece[i + 1]; ++p) {
      const Piece& piece = model.pieces[p];
      key.insert(key.end(), {piece.first, piece.last, piece.lower, piece.upper});
    }
    const auto [entry, fresh] = latest.emplace(std::move(key), i);
    if (!fresh) model.next_twin[std::exchange(entry->second, i)] = i;
  }
}

void find_bounds(Model& model) {
  model.load.assign(static_cast<std::size_t>(model.sections), 0);
  for (std::int32_t i = 0; i < model.n; ++i) {
    model.lower_bound = std::max(model.lower_bound, std::max<Units>(model.fixed[i], 0) + model.size[i]);
    for (std::int32_t p = model.first_piece[i]; p < model.first_piece[i + 1]; ++p) {
      const Piece& piece = model.pieces[p];
      for (std::int32_t s = piece.first; s <= piece.last; ++s) model.load[s] += piece.upper - piece.lower;
    }
  }
  for (const Units load : model.load) model.lower_bound = std::max(model.lower_bound, load);
}

}  // namespace

Model build_model(const Problem& problem, const std::vector<std::int32_t>& blocks) {
  Model model;
  model.unit = common_unit(problem, blocks);
  model.n = static_cast<std::int32_t>(blocks.size());
  model.block = blocks;
  model.first_piece.assign(1, 0);
  std::vector<std::int64_t> origin;
  for (const std::int32_t b : blocks) {
    const Bytes alignment = demanded_alignment(problem, b);
    const bool met = model.unit % alignment == 0;
    model.size.push_back(problem.size[b] / model.unit);
    model.alignment.push_back(met ? 1 : alignment / model.unit);
    model.fixed.push_back(problem.fixed[b] == kUnplaced ? kUnplaced : problem.fixed[b] / model.unit);
    std::int64_t width = 0;
    for (std::int64_t p = problem.first_piece[b]; p < problem.first_piece[b + 1]; ++p) {
      if (is_empty(problem, p)) continue;
      origin.push_back(p);
      width += problem.piece_end[p] - problem.piece_start[p];
      model.pieces.push_back({0, 0, problem.piece_lower[p] / model.unit, problem.piece_upper[p] / model.unit});
      model.floating |= problem.piece_lower[p] > 0;
    }
    model.width.push_back(width);
    model.area.push_back(width * model.size.back());
    model.first_piece.push_back(static_cast<std::int32_t>(model.pieces.size()));
  }
  find_sections(problem, origin, model);
  for (std::int32_t i = 0; i < model.n; ++i) {
    std::int32_t first = model.sections;
    std::int32_t last = 0;
    for (std::int32_t p = model.first_piece[i]; p < model.first_piece[i + 1]; ++p) {
      first = std::min(first, model.pieces[p].first);
      last = std::max(last, model.pieces[p].last);
    }
    model.first_section.push_back(first);
    model.last_section.push_back(last);
  }
  if (model.n <= kMostBlocks) {
    find_conflicts(model);
    find_twins(model);
  }
  find_bounds(model);
  return model;
}

std::vector<std::vector<std::int32_t>> components(const Problem& problem) {
  std::vector<std::tuple<Tick, Tick, std::int32_t>> spans;
  for (std::size_t b = 0; b < problem.n; ++b) {
    bool empty = true;
    Tick first = 0;
    Tick last = 0;
    for (std::int64_t p = problem.first_piece[b]; p < problem.first_piece[b + 1]; ++p) {
      if (is_empty(problem, p)) continue;
      first = empty ? problem.piece_start[p] : std::min(first, problem.piece_start[p]);
      last = empty ? problem.piece_end[p] : std::max(last, problem.piece_end[p]);
      empty = false;
    }
    if (!empty) spans.emplace_back(first, last, static_cast<std::int32_t>(b));
  }
  std::sort(spans.begin(), spans.end());
  std::vector<std::vector<std::int32_t>> groups;
  Tick reach = 0;
  for (const auto& [first, last, block] : spans) {
    if (groups.empty() || first >= reach) groups.emplace_back();
    reach = groups.back().empty() ? last : std::max(reach, last);
    groups.back().push_back(block);
  }
  return groups;
}

}  // namespace stowplan::packing::exact
