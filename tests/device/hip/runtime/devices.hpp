// The device that a thread uses.
#pragma once

namespace simhip {

extern thread_local int current_device;

bool is_device(int device);

}  // namespace simhip
