// Anytime improvement by beams of growing width over varied orders.
//
// Starts from the placement given, or from the starts of `window_repair` where they are better. Then rounds: in each,
// every thread runs one beam (beam.hpp) whose order, foot, power and branching are drawn for this round and thread, and
// which must end below the best so far, in three rounds of four by a margin. What is learnt is only that limit: a lower
// one drops states earlier, and so makes every round cheaper. The width grows by 15 % a round.
//
//     round        0        1        2     ...        the best of a round is the limit of the next; within a round
//     thread 0   ======   ======   ======             the threads do not talk, so the result does not depend on
//     thread 1   =====    =======  =====              their speed
//
// Blocks with gaps and fixed blocks stand where the start has put them. Problems of more than kBeamBlocks blocks are
// given to `window_repair`, with another seed for each thread.
#pragma once

#include "../problem.hpp"
#include "control.hpp"

namespace stowplan::packing {

constexpr std::size_t kBeamBlocks = 4000;

// `offset`: a valid placement, improved in place; returns its peak. Effort is counted in rounds (of `window_repair`: in
// its own measure). Equal seeds, threads and efforts without a time limit give equal results.
Bytes search(const Problem& problem, const Control& control, Bytes* offset);

}  // namespace stowplan::packing
