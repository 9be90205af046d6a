// Streams by their handles, and work that goes to them.
#pragma once

#include "schedule.hpp"

namespace simhip {

// The stream of a handle: of the current device where it is the legacy (null, 1) or the thread's own (2) default
// stream.
hipError_t find(hipStream_t handle, StreamRef* out);

// Queues work; where the stream is being captured, it becomes a node of the graph.
hipError_t enqueue(Lock& lock, const StreamRef& stream, const char* what, Run run, std::vector<Ticket> after = {});

}  // namespace simhip
