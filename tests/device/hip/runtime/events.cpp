// Events: places in the order of streams. One that was never recorded holds nothing up.
#include <chrono>
#include <memory>
#include <set>

#include "capture.hpp"
#include "contexts.hpp"
#include "devices.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "pools.hpp"
#include "streams.hpp"

namespace simhip {

namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  unsigned flags = 0;
  int device = 0;
  bool recorded = false;
  Ticket ticket;
  std::shared_ptr<Clock::time_point> when;
  std::shared_ptr<Capture> capture;  // of its last record
  std::vector<std::size_t> nodes;

  bool is_captured() const { return capture && capture->graph; }
};

std::set<hipEvent_t>& handles() {  // under the device's lock
  static auto* all = new std::set<hipEvent_t>;
  return *all;
}

Event* event_of(hipEvent_t handle) {
  if (handles().count(handle) != 0) return reinterpret_cast<Event*>(handle);
  if (handle != nullptr) refuse_dead("an event", hipErrorInvalidHandle);
  return nullptr;
}

hipError_t record(Lock& lock, Event& event, const StreamRef& stream) {
  if (!stream->capture && stream->device != event.device) return note(hipErrorInvalidHandle);
  if (stream->capture) {
    if (stream->capture->invalid) return note(hipErrorStreamCaptureInvalidated);
    event.capture = stream->capture;
    event.nodes = stream->capture_tail;
    return hipSuccess;
  }
  if (const hipError_t error = refuse_implicit(stream); error != hipSuccess) return error;
  auto when = std::make_shared<Clock::time_point>();
  event.capture = nullptr;
  event.when = when;
  event.recorded = true;
  event.ticket = {stream, stream->enqueued + 1};  // before it may run
  return push(lock, stream, "event record", [when] { *when = Clock::now(); });
}

// A stream that waits for a captured event is captured with it from then on.
hipError_t join(const Event& event, const StreamRef& stream) {
  if (event.capture->invalid) return note(hipErrorStreamCaptureInvalidated);
  if (stream->is_null) return invalidate(event.capture, hipErrorStreamCaptureImplicit);
  if (stream->capture && stream->capture != event.capture) {
    return invalidate(stream->capture, hipErrorStreamCaptureMerge);
  }
  if (!stream->capture) {
    stream->capture = event.capture;
    stream->capture_tail.clear();
    event.capture->streams.insert(stream.get());
  }
  std::set<std::size_t> tail(stream->capture_tail.begin(), stream->capture_tail.end());
  tail.insert(event.nodes.begin(), event.nodes.end());
  stream->capture_tail.assign(tail.begin(), tail.end());
  return hipSuccess;
}

hipError_t wait(Lock& lock, const StreamRef& stream, const Event& event) {
  if (event.is_captured()) return join(event, stream);
  if (stream->capture) {
    return event.recorded ? invalidate(stream->capture, hipErrorStreamCaptureIsolation) : hipSuccess;
  }
  if (const hipError_t error = refuse_implicit(stream); error != hipSuccess) return error;
  if (!event.recorded) return hipSuccess;
  return push(lock, stream, "event wait", nullptr, {event.ticket});
}

hipError_t refuse_look(const Event& event) {
  if (event.is_captured()) return invalidate(event.capture, hipErrorCapturedEvent);
  if (const hipError_t error = refuse_lost(event.device); error != hipSuccess) return error;
  return refuse_unsafe();
}

hipError_t synchronize(Lock& lock, const Event& event) {
  if (const hipError_t error = refuse_look(event); error != hipSuccess) return error;
  const Ticket ticket = event.ticket;
  if (const hipError_t error = wait_for(lock, ticket); error != hipSuccess) return error;
  if (ticket.stream) trim_pools_after_wait(ticket.stream->device);
  return hipSuccess;
}

hipError_t query(Lock& lock, const Event& event) {
  if (const hipError_t error = refuse_look(event); error != hipSuccess) return error;
  const Ticket ticket = event.ticket;
  return is_done_after_some_work(lock, ticket) ? hipSuccess : hipErrorNotReady;
}

hipError_t elapsed(float* milliseconds, const Event& from, const Event& to) {
  if (!from.recorded || !to.recorded) return note(hipErrorInvalidHandle);
  if (((from.flags | to.flags) & hipEventDisableTiming) != 0) return note(hipErrorInvalidHandle);
  if (!is_done(from.ticket) || !is_done(to.ticket)) return hipErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(*to.when - *from.when).count();
  return hipSuccess;
}

}  // namespace

}  // namespace simhip

using simhip::Lock;
using simhip::machine;
using simhip::note;

extern "C" {

hipError_t hipEventCreateWithFlags(hipEvent_t* out, unsigned flags) {
  const unsigned known = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess;
  if ((flags & ~known) != 0) return note(hipErrorInvalidValue);
  if (const hipError_t error = simhip::enter(simhip::current_device); error != hipSuccess) return error;
  Lock lock(machine().mutex);
  auto* event = new simhip::Event;
  event->flags = flags;
  event->device = simhip::current_device;
  *out = reinterpret_cast<hipEvent_t>(event);
  simhip::handles().insert(*out);
  return hipSuccess;
}

hipError_t hipEventCreate(hipEvent_t* out) { return hipEventCreateWithFlags(out, hipEventDefault); }

hipError_t hipEventDestroy(hipEvent_t handle) {
  simhip::refuse_gil(__func__);
  Lock lock(machine().mutex);
  const simhip::Event* event = simhip::event_of(handle);
  if (event == nullptr) return note(hipErrorInvalidHandle);
  simhip::handles().erase(handle);
  delete event;
  return hipSuccess;
}

hipError_t hipEventRecord(hipEvent_t handle, hipStream_t stream_handle) {
  simhip::refuse_gil(__func__);
  simhip::refuse_in_host_function(__func__);
  Lock lock(machine().mutex);
  simhip::Event* event = simhip::event_of(handle);
  if (event == nullptr) return note(hipErrorInvalidHandle);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(stream_handle, &stream); error != hipSuccess) return error;
  return simhip::record(lock, *event, stream);
}

hipError_t hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t handle, unsigned flags) {
  simhip::refuse_gil(__func__);
  if (flags != 0) return note(hipErrorInvalidValue);
  Lock lock(machine().mutex);
  simhip::Event* event = simhip::event_of(handle);
  if (event == nullptr) return note(hipErrorInvalidHandle);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(stream_handle, &stream); error != hipSuccess) return error;
  return simhip::wait(lock, stream, *event);
}

hipError_t hipEventSynchronize(hipEvent_t handle) {
  simhip::refuse_gil(__func__);
  Lock lock(machine().mutex);
  const simhip::Event* event = simhip::event_of(handle);
  return event != nullptr ? simhip::synchronize(lock, *event) : note(hipErrorInvalidHandle);
}

hipError_t hipEventQuery(hipEvent_t handle) {
  Lock lock(machine().mutex);
  const simhip::Event* event = simhip::event_of(handle);
  return event != nullptr ? simhip::query(lock, *event) : note(hipErrorInvalidHandle);
}

hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t from, hipEvent_t to) {
  Lock lock(machine().mutex);
  const simhip::Event* begin = simhip::event_of(from);
  const simhip::Event* end = simhip::event_of(to);
  if (begin == nullptr || end == nullptr) return note(hipErrorInvalidHandle);
  return simhip::elapsed(milliseconds, *begin, *end);
}

}  // extern "C"
