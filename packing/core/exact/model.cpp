#include "model.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace stowplan::packing::exact {
namespace {

// A fixed offset is a multiple of the alignment already.
Bytes demanded_alignment(const Problem& problem, std::size_t block) {
  return problem.fixed[block] == kUnplaced ? problem.alignment[block] : 1;
}

Bytes common_unit(const Problem& problem) {
  Bytes unit = 0;
  for (std::size_t b = 0; b < problem.n; ++b) {
    unit = std::gcd(unit, problem.size[b]);
    if (problem.fixed[b] != kUnplaced) unit = std::gcd(unit, problem.fixed[b]);
    for (std::int64_t p = problem.first_piece[b]; p < problem.first_piece[b + 1]; ++p) {
      unit = std::gcd(unit, problem.piece_lower[p]);
      unit = std::gcd(unit, problem.piece_upper[p]);
    }
  }
  // An alignment that divides every size is met by all multiples of the unit. The others refine it.
  const Bytes sizes = unit;
  for (std::size_t b = 0; b < problem.n; ++b) {
    const Bytes alignment = demanded_alignment(problem, b);
    if (sizes % alignment != 0) unit = std::gcd(unit, alignment);
  }
  return unit;
}

// Sets the pieces' section ranges. A section is kept when it neither lacks a start at its beginning nor an end at its
// end: otherwise its live set is part of a neighbour's.
void find_sections(const Problem& problem, Model& model) {
  const std::size_t count = model.pieces.size();
  std::vector<Tick> starts(problem.piece_start, problem.piece_start + count);
  std::vector<Tick> ends(problem.piece_end, problem.piece_end + count);
  std::sort(starts.begin(), starts.end());
  std::sort(ends.begin(), ends.end());
  std::vector<Tick> kept;  // one moment within each section: its last start
  std::size_t e = 0;
  for (std::size_t s = 0; s < count; ++s) {
    while (ends[e] <= starts[s]) ++e;
    if (s + 1 == count || ends[e] <= starts[s + 1]) kept.push_back(starts[s]);
  }
  model.sections = static_cast<std::int32_t>(kept.size());
  const auto section = [&](Tick tick) {
    return static_cast<std::int32_t>(std::lower_bound(kept.begin(), kept.end(), tick) - kept.begin());
  };
  for (std::size_t k = 0; k < count; ++k) {
    model.pieces[k].first = section(problem.piece_start[k]);
    model.pieces[k].last = section(problem.piece_end[k]) - 1;
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
    for (const Piece& piece : model.pieces_of(i)) {
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
    model.each_section(i, [&](const Piece& piece, std::int32_t s) { model.load[s] += piece.upper - piece.lower; });
  }
  for (const Units load : model.load) model.lower_bound = std::max(model.lower_bound, load);
}

}  // namespace

Model build_model(const Problem& problem) {
  Model model;
  model.unit = common_unit(problem);
  model.n = static_cast<std::int32_t>(problem.n);
  model.first_piece.assign(problem.first_piece, problem.first_piece + problem.n + 1);
  for (std::size_t b = 0; b < problem.n; ++b) {
    const Bytes alignment = demanded_alignment(problem, b);
    model.size.push_back(problem.size[b] / model.unit);
    model.alignment.push_back(model.unit % alignment == 0 ? 1 : alignment / model.unit);
    model.fixed.push_back(problem.fixed[b] == kUnplaced ? kUnplaced : problem.fixed[b] / model.unit);
    std::int64_t width = 0;
    for (std::int64_t p = problem.first_piece[b]; p < problem.first_piece[b + 1]; ++p) {
      width += problem.piece_end[p] - problem.piece_start[p];
      model.pieces.push_back({0, 0, problem.piece_lower[p] / model.unit, problem.piece_upper[p] / model.unit});
      model.floating |= problem.piece_lower[p] > 0;
    }
    model.width.push_back(width);
    model.area.push_back(width * model.size.back());
  }
  find_sections(problem, model);
  for (std::int32_t i = 0; i < model.n; ++i) {  // pieces rise in time
    model.first_section.push_back(model.pieces[model.first_piece[i]].first);
    model.last_section.push_back(model.pieces[model.first_piece[i + 1] - 1].last);
  }
  find_conflicts(model);
  find_twins(model);
  find_bounds(model);
  return model;
}

}  // namespace stowplan::packing::exact
