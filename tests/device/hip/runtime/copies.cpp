// Copies and fills. Each holds its whole ranges against what is alive, when it runs.
//
// Pageable memory of the host is read before the call returns, and written before it returns.
#include <cstring>
#include <memory>
#include <vector>

#include "capture.hpp"
#include "check.hpp"
#include "devices.hpp"
#include "enqueue.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "memory.hpp"
#include "modules.hpp"
#include "streams.hpp"

namespace simhip {

namespace {

struct Copy {
  void* to;
  const void* from;
  std::size_t size;
};

void run(const Copy& copy, const void* from) {
  const bool to_allowed = check_range(copy.to, copy.size, -1);
  if (check_range(copy.from, copy.size, -1) && to_allowed) std::memmove(copy.to, from, copy.size);
}

bool is_ours(const void* pointer) {
  return memory().is_ours(reinterpret_cast<std::uintptr_t>(pointer)) || is_variable(pointer);
}

// What the program says of the direction has to be so: pageable memory is not a device's.
bool is_direction_right(const Copy& copy, hipMemcpyKind kind) {
  const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
  const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
  return copy.size == 0 || ((!from_device || is_ours(copy.from)) && (!to_device || is_ours(copy.to)));
}

// The device whose memory it is; -1 where it is no device's alone.
int device_of(const void* pointer) {
  const std::optional<Block> block = memory().find(pointer);
  return block && block->kind != Kind::managed && block->kind != Kind::pinned ? block->device : -1;
}

// A copy between devices on the legacy stream comes after all that either was given, and before what either is given.
hipError_t queue_between(Lock& lock, const StreamRef& stream, const Copy& copy, int to, int from) {
  std::vector<Ticket> before;
  for (const int device : {to, from}) {
    for (const StreamRef& other : machine().devices[static_cast<std::size_t>(device)].streams) {
      if (!other->idle()) before.push_back(tail_of(other));
    }
  }
  Run work = [copy] { run(copy, copy.from); };
  hipError_t error = enqueue(lock, stream, "copy between devices", std::move(work), std::move(before));
  const Ticket copied = tail_of(stream);
  for (const int device : {to, from}) {
    const StreamRef& other = machine().devices[static_cast<std::size_t>(device)].null_stream;
    if (error == hipSuccess && other != stream) error = push(lock, other, "copy between devices", nullptr, {copied});
  }
  return error;
}

hipError_t queue(Lock& lock, const StreamRef& stream, const Copy& copy, bool waits) {
  if (is_ours(copy.from) || waits || stream->capture) {
    const int to = device_of(copy.to);
    const int from = device_of(copy.from);
    if (stream->is_null && to >= 0 && from >= 0 && to != from) return queue_between(lock, stream, copy, to, from);
    return enqueue(lock, stream, "copy", [copy] { run(copy, copy.from); });
  }
  const auto* bytes = static_cast<const char*>(copy.from);
  auto staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.size);
  return enqueue(lock, stream, "copy from pageable memory", [copy, staged] { run(copy, staged->data()); });
}

hipError_t copy_on(Lock& lock, hipStream_t handle, const Copy& copy, bool waits) {
  StreamRef stream;
  if (const hipError_t error = find(handle, &stream); error != hipSuccess) return error;
  if (waits) {
    if (const hipError_t error = refuse_unsafe(); error != hipSuccess) return error;
    if (stream->capture) return invalidate(stream->capture, hipErrorStreamCaptureUnsupported);
  }
  if (copy.size == 0) return hipSuccess;
  if (const hipError_t error = queue(lock, stream, copy, waits); error != hipSuccess) return error;
  const bool done_when_over = waits || (!is_ours(copy.to) && !stream->capture);
  return done_when_over ? wait_for(lock, tail_of(stream)) : hipSuccess;
}

hipError_t directed(const Copy& copy, hipMemcpyKind kind, hipStream_t stream, bool waits) {
  if (!is_direction_right(copy, kind)) return note(hipErrorInvalidValue);
  Lock lock(machine().mutex);
  return copy_on(lock, stream, copy, waits);
}

// Each side is where the call says it is.
bool is_on(const void* pointer, int device) {
  const std::optional<Block> block = memory().find(pointer);
  const bool of_device = block && (block->kind == Kind::device || block->kind == Kind::ordered);
  return is_device(device) && (!of_device || block->device == device);
}

}  // namespace

}  // namespace simhip

using simhip::Lock;
using simhip::machine;
using simhip::note;

extern "C" {

hipError_t hipMemcpy(void* to, const void* from, std::size_t size, hipMemcpyKind kind) {
  simhip::refuse_gil(__func__);
  return simhip::directed({to, from, size}, kind, nullptr, true);
}

hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t size, hipMemcpyKind kind, hipStream_t stream) {
  simhip::refuse_gil(__func__);
  return simhip::directed({to, from, size}, kind, stream, false);
}

hipError_t hipMemcpyPeer(void* to, int device, const void* from, int other, std::size_t size) {
  simhip::refuse_gil(__func__);
  if (!simhip::is_on(to, device) || !simhip::is_on(from, other)) return note(hipErrorInvalidValue);
  Lock lock(machine().mutex);
  return simhip::copy_on(lock, nullptr, {to, from, size}, true);
}

hipError_t hipMemcpyPeerAsync(void* to, int device, const void* from, int other, std::size_t size, hipStream_t stream) {
  simhip::refuse_gil(__func__);
  if (!simhip::is_on(to, device) || !simhip::is_on(from, other)) return note(hipErrorInvalidValue);
  Lock lock(machine().mutex);
  return simhip::copy_on(lock, stream, {to, from, size}, false);
}

hipError_t hipMemsetAsync(void* to, int value, std::size_t size, hipStream_t stream) {
  simhip::refuse_gil(__func__);
  if (size != 0 && !simhip::is_ours(to)) return note(hipErrorInvalidValue);
  return simhip_enqueue_ranges(stream, "fill", {{to, size}}, [=] { std::memset(to, value, size); });
}

hipError_t hipMemset(void* to, int value, std::size_t size) { return hipMemsetAsync(to, value, size, nullptr); }

}  // extern "C"
