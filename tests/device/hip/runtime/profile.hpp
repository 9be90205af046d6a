// SIMHIP_PROFILE=1: at the end, which pieces of work took how long.
#pragma once

#include "running.hpp"

namespace simhip {

// Adds the time since the piece began. Under the device's lock.
void note_time(const Running& done);

}  // namespace simhip
