// Captures: streams whose work becomes the nodes of a graph, and what may not be done while they are.
//
// A call is refused as CUDA refuses it, and breaks the capture, as there: see the functions' names.
#pragma once

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "schedule.hpp"

namespace simhip {

// What tells when the graphs that have it are gone.
struct UserObject {
  void (*destroy)(void*);
  void* argument;
  ~UserObject() { destroy(argument); }
};

struct Graph {
  struct Node {
    const char* what;
    Run run;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<UserObject>> objects;
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();  // null once the capture has ended
  Stream* origin = nullptr;
  hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
  std::thread::id thread;
  unsigned long long id = 0;
  bool invalid = false;
  std::set<Stream*> streams;
};

// Breaks the capture, if there is one, and returns the error.
hipError_t invalidate(const std::shared_ptr<Capture>& capture, hipError_t error);

// A call that may end in a wait (allocation, free, queries, synchronization): what captures of the thread, or in the
// "global" mode of any thread, forbid. The thread's own mode (hipThreadExchangeStreamCaptureMode) can allow it.
hipError_t refuse_unsafe();

// A wait for a device, of which a stream is being captured in whatever mode.
hipError_t refuse_while_capturing(int device);

// The legacy stream would wait for, or be waited for by, a stream that is being captured.
hipError_t refuse_implicit(const StreamRef& stream);

// Adds work to the stream's graph. Only where the stream is being captured.
hipError_t add_node(const StreamRef& stream, const char* what, Run run);

// A stream that is being captured is destroyed: the capture cannot end well.
void forget_stream(const StreamRef& stream);

}  // namespace simhip
