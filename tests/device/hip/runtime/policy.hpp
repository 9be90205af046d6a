// Which of the streams whose work may run is next.
//
// lazy, eager: at random, by weights that make some streams slow for a while; half of the waits run only what is waited
// for. adversarial: the stream with the newest work, or what that waits for, newest first. So of two pieces in no order
// the one that was asked for later runs first, whatever the seed: a block that is handed on too early is overwritten
// before its last use.
#pragma once

#include "schedule.hpp"

namespace simhip {

// How one wait goes about it.
struct Way {
  bool only_needed;
};

Way new_way();

// The next stream to run while the ticket is waited for; null where nothing that would help can run here.
StreamRef next_for(const Ticket& ticket, Way way);

// The next stream to run, whatever is waited for; null where nothing is ready.
StreamRef next_of_all();

// The stream whose next piece the ticket waits for, directly or not; null where another thread runs that piece.
StreamRef needed_for(const Ticket& ticket);

// Now and then: other streams are slow.
void new_weights();

}  // namespace simhip
