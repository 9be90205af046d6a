#include "streams.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "capture.hpp"
#include "check.hpp"
#include "contexts.hpp"
#include "devices.hpp"
#include "enqueue.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "pools.hpp"

namespace simhip {

namespace {

// A thread's default streams end with it; their work goes on.
struct OwnStreams {
  std::map<int, StreamRef> of_device;
  OwnStreams() = default;
  OwnStreams(const OwnStreams&) = delete;
  OwnStreams& operator=(const OwnStreams&) = delete;
  ~OwnStreams() {
    Lock lock(machine().mutex);
    for (auto& entry : of_device) {
      forget_stream(entry.second);
      entry.second->destroyed = true;
      forget_if_drained(entry.second);
    }
  }
};
thread_local OwnStreams own;

const hipStream_t kLegacy = reinterpret_cast<hipStream_t>(1);
const hipStream_t kPerThread = reinterpret_cast<hipStream_t>(2);

hipError_t create(hipStream_t* out, unsigned flags, int priority) {
  if ((flags & ~static_cast<unsigned>(hipStreamNonBlocking)) != 0) return note(hipErrorInvalidValue);
  if (const hipError_t error = enter(current_device); error != hipSuccess) return error;
  Lock lock(machine().mutex);
  const StreamRef stream = new_stream(current_device, flags, std::clamp(priority, -1, 1));
  *out = reinterpret_cast<hipStream_t>(stream.get());
  machine().handles[*out] = stream;
  return hipSuccess;
}

hipError_t destroy(hipStream_t handle) {
  Lock lock(machine().mutex);
  const auto found = machine().handles.find(handle);
  if (found == machine().handles.end()) return refuse_dead("a stream", hipErrorContextIsDestroyed);
  const StreamRef stream = found->second;
  machine().handles.erase(found);
  forget_stream(stream);
  stream->destroyed = true;
  forget_if_drained(stream);
  return hipSuccess;
}

// What may be waited for, or asked about.
hipError_t refuse_look(const StreamRef& stream) {
  if (stream->capture) return invalidate(stream->capture, hipErrorStreamCaptureUnsupported);
  if (const hipError_t error = refuse_unsafe(); error != hipSuccess) return error;
  return refuse_implicit(stream);
}

// The legacy stream is done when all that it waits for is.
std::vector<Ticket> tails_behind(const StreamRef& stream) {
  std::vector<Ticket> tails;
  if (stream->is_null) {
    for (const StreamRef& other : machine().devices[static_cast<std::size_t>(stream->device)].streams) {
      if (other->blocking()) tails.push_back(tail_of(other));
    }
  }
  tails.push_back(tail_of(stream));
  return tails;
}

hipError_t synchronize(Lock& lock, const StreamRef& stream) {
  if (const hipError_t error = refuse_look(stream); error != hipSuccess) return error;
  for (const Ticket& tail : tails_behind(stream)) {
    if (const hipError_t error = wait_for(lock, tail); error != hipSuccess) return error;
  }
  trim_pools_after_wait(stream->device);
  return hipSuccess;
}

hipError_t query(Lock& lock, const StreamRef& stream) {
  if (const hipError_t error = refuse_look(stream); error != hipSuccess) return error;
  for (const Ticket& tail : tails_behind(stream)) {
    if (!is_done_after_some_work(lock, tail)) return hipErrorNotReady;
  }
  return hipSuccess;
}

Run checked(std::vector<SimhipRange> ranges, const StreamRef& stream, Run work) {
  if (ranges.empty()) return work;
  return [ranges = std::move(ranges), device = stream->device, work = std::move(work)] {
    bool allowed = true;
    for (const SimhipRange& range : ranges) allowed = check_range(range.base, range.size, device) && allowed;
    if (allowed) work();
  };
}

// A host function runs on a thread of the driver's, which holds nothing that the thread that waits holds: no GIL.
hipError_t enqueue_on_host(hipStream_t handle, const char* what, const Run& function) {
  return simhip_enqueue(handle, what, [function] {
    std::thread([&function, frame = running] {
      running = frame;
      in_host_function() = true;
      function();
    }).join();
  });
}

}  // namespace

hipError_t find(hipStream_t handle, StreamRef* out) {
  if (handle == nullptr || handle == kLegacy) {
    *out = machine().devices[static_cast<std::size_t>(current_device)].null_stream;
    return enter(current_device);
  }
  if (handle == kPerThread) {
    StreamRef& stream = own.of_device[current_device];
    if (!stream) {
      stream = new_stream(current_device, 0, 0);
      stream->is_per_thread = true;
    }
    *out = stream;
    return enter(current_device);
  }
  const auto found = machine().handles.find(handle);
  if (found == machine().handles.end()) return refuse_dead("a stream", hipErrorContextIsDestroyed);
  *out = found->second;
  return refuse_lost(found->second->device);
}

hipError_t enqueue(Lock& lock, const StreamRef& stream, const char* what, Run run, std::vector<Ticket> after) {
  if (stream->capture) return add_node(stream, what, std::move(run));
  if (const hipError_t error = refuse_implicit(stream); error != hipSuccess) return error;
  return push(lock, stream, what, std::move(run), std::move(after));
}

}  // namespace simhip

using simhip::Lock;
using simhip::machine;
using simhip::StreamRef;

hipError_t simhip_enqueue_ranges(hipStream_t handle, const char* what, std::vector<SimhipRange> ranges,
                                 std::function<void()> work) {
  Lock lock(machine().mutex);
  StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  return simhip::enqueue(lock, stream, what, simhip::checked(std::move(ranges), stream, std::move(work)));
}

hipError_t simhip_enqueue(hipStream_t handle, const char* what, std::function<void()> work) {
  return simhip_enqueue_ranges(handle, what, {}, std::move(work));
}

extern "C" {

hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority) {
  return simhip::create(stream, flags, priority);
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) { return simhip::create(stream, flags, 0); }

hipError_t hipStreamCreate(hipStream_t* stream) { return simhip::create(stream, hipStreamDefault, 0); }

hipError_t hipStreamDestroy(hipStream_t handle) {
  simhip::refuse_gil(__func__);
  return simhip::destroy(handle);
}

hipError_t hipStreamGetFlags(hipStream_t handle, unsigned* flags) {
  Lock lock(machine().mutex);
  StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  *flags = stream->flags;
  return hipSuccess;
}

hipError_t hipStreamGetPriority(hipStream_t handle, int* priority) {
  Lock lock(machine().mutex);
  StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  *priority = stream->priority;
  return hipSuccess;
}

int hipGetStreamDeviceId(hipStream_t handle) {
  Lock lock(machine().mutex);
  StreamRef stream;
  return simhip::find(handle, &stream) == hipSuccess ? stream->device : -1;
}

hipError_t hipStreamSynchronize(hipStream_t handle) {
  simhip::refuse_gil(__func__);
  Lock lock(machine().mutex);
  StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  return simhip::synchronize(lock, stream);
}

hipError_t hipStreamQuery(hipStream_t handle) {
  Lock lock(machine().mutex);
  StreamRef stream;
  if (const hipError_t error = simhip::find(handle, &stream); error != hipSuccess) return error;
  return simhip::query(lock, stream);
}

hipError_t hipLaunchHostFunc(hipStream_t handle, hipHostFn_t function, void* data) {
  return simhip::enqueue_on_host(handle, "host function", [=] { function(data); });
}

hipError_t hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t function, void* data, unsigned) {
  return simhip::enqueue_on_host(handle, "callback", [=] { function(handle, hipSuccess, data); });
}

}  // extern "C"
