#include "capture.hpp"

#include <algorithm>

#include "faults.hpp"
#include "gil.hpp"
#include "streams.hpp"

namespace simhip {

namespace {

std::set<Capture*>& captures() {  // under the device's lock
  static auto* all = new std::set<Capture*>;
  return *all;
}

unsigned long long ids = 0;
thread_local hipStreamCaptureMode thread_mode = hipStreamCaptureModeGlobal;

bool captures_blocking_stream(const Capture& capture, int device) {
  return std::any_of(capture.streams.begin(), capture.streams.end(),
                     [&](const Stream* stream) { return stream->blocking() && stream->device == device; });
}

bool forbids_unsafe(const Capture& capture) {
  if (thread_mode == hipStreamCaptureModeRelaxed || capture.mode == hipStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return capture.mode == hipStreamCaptureModeGlobal && thread_mode == hipStreamCaptureModeGlobal;
}

hipError_t begin(const StreamRef& stream, hipStreamCaptureMode mode) {
  if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed) return note(hipErrorInvalidValue);
  if (stream->is_null) return note(hipErrorStreamCaptureUnsupported);
  if (stream->capture) return note(hipErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->id = ++ids;
  capture->streams = {stream.get()};
  stream->capture = capture;
  stream->capture_tail.clear();
  captures().insert(capture.get());
  return hipSuccess;
}

// Which nodes come before the origin's end.
std::vector<char> joined_nodes(const Graph& graph, std::vector<std::size_t> left) {
  std::vector<char> joined(graph.nodes.size(), 0);
  while (!left.empty()) {
    const std::size_t node = left.back();
    left.pop_back();
    if (joined[node] != 0) continue;
    joined[node] = 1;
    left.insert(left.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return joined;
}

bool release_streams(const std::shared_ptr<Capture>& capture, const std::vector<char>& joined) {
  bool all_joined = true;
  const auto streams = capture->streams;
  for (Stream* stream : streams) {
    for (const std::size_t node : stream->capture_tail) all_joined = all_joined && joined[node] != 0;
    stream->capture_tail.clear();
    stream->capture = nullptr;
  }
  return all_joined;
}

hipError_t end(const StreamRef& stream, hipGraph_t* out) {
  *out = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return note(hipErrorIllegalState);
  if (capture->origin != stream.get()) return invalidate(capture, hipErrorStreamCaptureUnmatched);
  if (capture->mode != hipStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return invalidate(capture, hipErrorStreamCaptureWrongThread);
  }
  captures().erase(capture.get());
  const bool joined = release_streams(capture, joined_nodes(*capture->graph, stream->capture_tail));
  const std::shared_ptr<Graph> graph = std::move(capture->graph);
  capture->graph = nullptr;  // its events are events of nothing now
  if (capture->invalid) return note(hipErrorStreamCaptureInvalidated);
  if (!joined) return note(hipErrorStreamCaptureUnjoined);
  *out = reinterpret_cast<hipGraph_t>(new std::shared_ptr<Graph>(graph));
  return hipSuccess;
}

hipStreamCaptureStatus status_of(const Stream& stream) {
  if (!stream.capture) return hipStreamCaptureStatusNone;
  return stream.capture->invalid ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
}

// To ask breaks nothing, even where there is no answer: the legacy stream would wait for a stream that is captured.
hipError_t ask(const StreamRef& stream, hipStreamCaptureStatus* status) {
  if (stream->is_null) {
    for (const Capture* capture : captures()) {
      if (captures_blocking_stream(*capture, stream->device)) return note(hipErrorStreamCaptureImplicit);
    }
  }
  *status = status_of(*stream);
  return hipSuccess;
}

}  // namespace

hipError_t invalidate(const std::shared_ptr<Capture>& capture, hipError_t error) {
  if (capture) capture->invalid = true;
  return note(error);
}

hipError_t refuse_unsafe() {
  bool refused = false;
  for (Capture* capture : captures()) {
    if (!forbids_unsafe(*capture)) continue;
    capture->invalid = true;
    refused = true;
  }
  return refused ? note(hipErrorStreamCaptureUnsupported) : hipSuccess;
}

hipError_t refuse_while_capturing(int device) {
  for (Capture* capture : captures()) {
    if (capture->origin->device != device) continue;
    capture->invalid = true;
    return note(hipErrorStreamCaptureUnsupported);
  }
  return hipSuccess;
}

hipError_t refuse_implicit(const StreamRef& stream) {
  if (!stream->is_null) return hipSuccess;
  for (Capture* capture : captures()) {
    if (!captures_blocking_stream(*capture, stream->device)) continue;
    capture->invalid = true;
    return note(hipErrorStreamCaptureImplicit);
  }
  return hipSuccess;
}

hipError_t add_node(const StreamRef& stream, const char* what, Run run) {
  if (stream->capture->invalid) return note(hipErrorStreamCaptureInvalidated);
  Graph& graph = *stream->capture->graph;
  graph.nodes.push_back({what, std::move(run), stream->capture_tail});
  stream->capture_tail = {graph.nodes.size() - 1};
  return hipSuccess;
}

void forget_stream(const StreamRef& stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return;
  capture->invalid = true;
  capture->streams.erase(stream.get());
  stream->capture = nullptr;
  if (capture->origin != stream.get()) return;
  captures().erase(capture.get());  // it cannot be ended any more
  release_streams(capture, std::vector<char>(capture->graph->nodes.size(), 1));
  capture->graph = nullptr;
}

}  // namespace simhip

using simhip::note;

extern "C" {

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  simhip::Lock lock(simhip::machine().mutex);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  return simhip::begin(stream, mode);
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t* graph) {
  simhip::Lock lock(simhip::machine().mutex);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  return simhip::end(stream, graph);
}

hipError_t hipStreamIsCapturing(hipStream_t handle, hipStreamCaptureStatus* status) {
  simhip::refuse_in_host_function(__func__);
  simhip::Lock lock(simhip::machine().mutex);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  return simhip::ask(stream, status);
}

hipError_t hipStreamGetCaptureInfo(hipStream_t handle, hipStreamCaptureStatus* status, unsigned long long* id) {
  simhip::Lock lock(simhip::machine().mutex);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  if (const hipError_t error = simhip::ask(stream, status); error != hipSuccess) return error;
  if (id != nullptr) *id = stream->capture ? stream->capture->id : 0;
  return hipSuccess;
}

// The nodes have no handles.
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t handle, hipStreamCaptureStatus* status, unsigned long long* id,
                                      hipGraph_t* graph, const hipGraphNode_t** dependencies, std::size_t* count) {
  simhip::StreamRef stream;
  if (graph != nullptr) {
    simhip::Lock lock(simhip::machine().mutex);
    if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
    const bool is_capturing = stream->capture != nullptr && stream->capture->graph != nullptr;
    *graph = is_capturing ? reinterpret_cast<hipGraph_t>(&stream->capture->graph) : nullptr;
  }
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return hipStreamGetCaptureInfo(handle, status, id);
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  if (*mode < hipStreamCaptureModeGlobal || *mode > hipStreamCaptureModeRelaxed) return note(hipErrorInvalidValue);
  std::swap(*mode, simhip::thread_mode);
  return hipSuccess;
}

}  // extern "C"
