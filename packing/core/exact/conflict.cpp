// Why a node failed: the decisions that are enough to refute it.
//
// A decision is "block i lies at the lowest offset that the placed blocks allow" or "it lies higher"; a conflict is a
// set of blocks whose decisions on the current path cannot all hold. When the conflict left by the first branch of a
// decision does not name its block, the second branch would fail for the same reason: the search jumps back over it.
// Decisions taken far away in time are skipped this way.
//
// What the inference knows of an open block is a lower end, "its offset is at least v". It has two kinds of reasons:
//
// - a placed block that it has to rest upon or above (`explain`): that placement, and whatever keeps it from lying
//   below;
// - it was excluded at its offset (`explain_raised`): it must rest upon an open block then, so at the lowest end that
//   one of them can have. That none of the placed ones lifts it, is owed to where they lie: all of them are named.
#include <algorithm>

#include "decision.hpp"

namespace stowplan::packing::exact {

constexpr int kMostDepth = 2000;  // of explanations that rest on each other
// A block may be explained again and again, each time for a little more. Sharp conflicts are not worth that long.
constexpr int kMostSteps = 100'000;

void Search::start_conflict() {
  std::fill(conflict_.begin(), conflict_.end(), 0);
  std::fill(explained_.begin(), explained_.end(), 0);
  steps_ = 0;
}

void Search::add_placed_neighbours(std::int32_t block) {
  for (std::size_t w = 0; w < words_; ++w) conflict_[w] |= neighbours_[block * words_ + w] & placed_set_[w];
}

// Adds why the offset of `block`, open or about to be placed, is at least `least` (its offset_ is no less).
void Search::explain(std::int32_t block, Units least) {
  std::int32_t at = last_change_[block];
  while (at >= 0 && least > 0) {
    while (at >= 0 && changes_[at].offset >= least) at = changes_[at].previous;
    if (at < 0) return;  // it never was lower: a fixed offset
    const Change& change = changes_[at];
    add(change.by);
    // It cannot lie below `by`: its offset was too high for that already.
    if (change.offset < change.too_high) {
      // Or else, it was excluded there. Rare (a window in one of its pieces): blame every decision.
      blame_every_decision();
      return;
    }
    least = change.too_high;
    at = change.previous;
  }
}

// Adds why the offset of `block`, which is open, is at least `least`.
void Search::explain_least(std::int32_t block, Units least) {
  if (least <= 0) return;
  if (offset_[block] >= least) {
    explain(block, least);
  } else {
    explain_raised(block, least);
  }
}

// Adds why the offset of `block`, which is open and excluded at its offset_ or waits for its twin, is at least `least`.
void Search::explain_raised(std::int32_t block, Units least) {
  if (least <= explained_[block]) return;
  if (least > lowest_[block] || depth_ == kMostDepth || ++steps_ > kMostSteps) {
    // Windows can support each other in a circle, which would be followed around and around: blame every decision.
    blame_every_decision();
    return;
  }
  explained_[block] = least;
  ++depth_;
  add(block);
  add_placed_neighbours(block);
  explain(block, std::min(least, offset_[block]));
  // The alignment does its part: resting a little lower would lift it to `least` as well.
  const Units alignment = model_.alignment[block];
  least = align_up(least, alignment) - alignment + 1;
  for (const auto& [k, above, below] : model_.conflicts_of(block)) {
    if (placed_[k]) continue;
    explain_least(k, least - below);
  }
  --depth_;
}

// Adds why nothing will ever come in the way of `block` at its offset_, though it is excluded there.
void Search::explain_room(std::int32_t block) {
  add(block);
  add_placed_neighbours(block);
  for (const auto& [k, above, below] : model_.conflicts_of(block)) {
    if (!placed_[k]) explain_least(k, offset_[block] + above);
  }
}

void Search::explain_section(std::size_t begin, std::size_t end, std::int32_t section, Units least) {
  for (std::size_t k = begin; k < end; ++k) {
    const std::int32_t i = open_[k];
    for (const Piece& piece : model_.pieces_of(i)) {
      if (piece.first <= section && section <= piece.last) explain_least(i, least - piece.lower);
    }
  }
}

void Search::explain_state(std::size_t begin, std::size_t end) {
  start_conflict();
  for (std::size_t k = begin; k < end; ++k) {
    const std::int32_t i = open_[k];
    explain(i, offset_[i]);
    if (!is_blocked(i)) continue;
    add(i);
    add_placed_neighbours(i);
  }
}

// The conflict of a node from those of its branches. saved_ from `saved` on holds one for each block that was placed
// and then excluded, exclusions_ from `exclusions` on holds these blocks; conflict_ is that of the last branch.
void Search::resolve(std::size_t saved, std::size_t exclusions) {
  for (std::size_t k = exclusions_.size(); k-- > exclusions;) {
    const auto [i, excluded_before] = exclusions_[k];
    if (!has(i)) continue;
    const std::uint64_t* const other = saved_.data() + saved + (k - exclusions) * words_;
    for (std::size_t w = 0; w < words_; ++w) conflict_[w] |= other[w];
    // An earlier decision on the same block goes by the same name.
    if (excluded_before < 0) conflict_[i >> 6] &= ~(std::uint64_t{1} << (i & 63));
    explain(i, offset_[i]);
  }
}

}  // namespace stowplan::packing::exact
