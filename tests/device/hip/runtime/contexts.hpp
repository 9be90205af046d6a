// Contexts: what a process has to have on a device before it can use it.
//
// The first call that needs a context makes it, on the thread's current device; hipSetDevice does, as CUDA's has since
// its version 12, so a thread that puts back the device that it came with makes one there. A context takes
// SIMHIP_CONTEXT bytes of its device until the process ends. A fault in a device's work ends its context
// (SIMHIP_FAULTS=stick): what is queued is passed over, and each call from then on answers with the fault's error.
#pragma once

#include "hip.hpp"

namespace simhip {

// Makes the context, where there is none. The error is that of a lost one, or hipErrorOutOfMemory.
hipError_t enter(int device);

// hipErrorIllegalAddress where the device's context is lost.
hipError_t refuse_lost(int device);
void lose_context(int device);

}  // namespace simhip
