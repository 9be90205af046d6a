// The work that a thread runs for the device: work inside work, where it waits or spins and lets other streams run.
#pragma once

#include <string>

namespace simhip {

struct Stream;

struct Running {
  const Stream* stream;
  const char* what;
  Running* outer;
  const char* part = nullptr;  // the node of a graph; of this thread alone
  int naps = 0;                // how often it was late, and no other work was there
};

extern thread_local Running* running;  // null: the thread runs code of the host

// "kernel add on stream 2 of device 0", or "host code".
std::string what_runs();

}  // namespace simhip
