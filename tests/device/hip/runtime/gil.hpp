// What a thread that calls the runtime must not be: one that holds Python's GIL, or that runs a host function.
#pragma once

namespace simhip {

// A call that may wait is a fault where its thread holds the GIL: a host function of Python's could never run, and the
// call may wait for one. SIMHIP_GIL=0: it is none.
void refuse_gil(const char* call);

// Whether this thread runs a host function, which must call nothing of CUDA's: here that is a fault where an event is
// recorded, or a stream is asked for its capture. (Those that wait are told by their deadlocks.)
bool& in_host_function();
void refuse_in_host_function(const char* call);

}  // namespace simhip
