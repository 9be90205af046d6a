// Python's GIL, held by a thread that calls the runtime.
#pragma once

namespace simhip {

// A call that may wait is a fault where its thread holds the GIL: a host function of Python's could never run, and the
// call may wait for one. SIMHIP_GIL=0: it is none.
void refuse_gil(const char* call);

}  // namespace simhip
