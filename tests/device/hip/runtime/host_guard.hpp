// SIMHIP_HOST_ACCESS=refuse: device memory can be touched only while work runs.
//
// While nothing runs, the addresses of all allocations are closed; host code that reads or writes there ends with a
// report. Opening and closing costs in proportion to the memory in use, so it is a choice, for tests of small programs.
// Host code that touches device memory while another thread runs work goes unseen.
#pragma once

namespace simhip {

// Device memory is open as long as one of these lives.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace simhip
