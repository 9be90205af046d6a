#include "schedule.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "contexts.hpp"
#include "faults.hpp"
#include "host_guard.hpp"
#include "policy.hpp"
#include "settings.hpp"

namespace simhip {

thread_local Running* running = nullptr;

std::string Stream::name() const {
  const std::string of = " of device " + std::to_string(device);
  if (is_null) return "the legacy default stream" + of;
  if (is_per_thread) return "a thread's default stream" + of;
  return "stream " + std::to_string(number) + of;
}

std::string what_runs() {
  if (running == nullptr) return "host code";
  const std::string what = running->what;
  return (running->part == nullptr ? what : running->part + (" in " + what)) + " on " + running->stream->name();
}

Machine::Machine() : devices(static_cast<std::size_t>(settings().devices)), random(settings().seed) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto stream = std::make_shared<Stream>();
    stream->is_null = true;
    stream->device = static_cast<int>(i);
    devices[i] = {stream, {stream}};
  }
}

Machine& machine() {
  static auto* m = new Machine;  // work may run until the process is gone
  return *m;
}

StreamRef new_stream(int device, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->number = ++machine().streams_made;
  machine().devices[static_cast<std::size_t>(device)].streams.push_back(stream);
  return stream;
}

void forget_if_drained(const StreamRef& stream) {
  if (!stream->destroyed || !stream->queue.empty() || stream->busy) return;
  auto& streams = machine().devices[static_cast<std::size_t>(stream->device)].streams;
  streams.erase(std::remove(streams.begin(), streams.end(), stream), streams.end());
}

bool is_ready(const Stream& stream) {
  if (stream.busy || stream.queue.empty()) return false;
  const auto& after = stream.queue.front().after;
  return std::all_of(after.begin(), after.end(), [](const Ticket& ticket) { return is_done(ticket); });
}

namespace {

constexpr std::uint64_t kBacklog = 2048;  // pieces of work that wait at most
constexpr int kMostNaps = 100;
constexpr std::chrono::microseconds kNap(20);

// What sleeps looks again: something has changed.
void wake_all() {
  ++machine().changes;
  machine().blocked = 0;
  machine().changed.notify_all();
}

void run_next(Lock& lock, const StreamRef& stream) {
  Machine& m = machine();
  Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  stream->busy = true;
  Running frame{stream.get(), work.what, running, nullptr, 0};
  m.frames.push_back(&frame);
  lock.unlock();
  running = &frame;
  if (settings().trace) say(what_runs());
  if (work.run && refuse_lost(stream->device) == hipSuccess) {
    const DeviceAccess access;
    work.run();
  }
  work.run = nullptr;  // what it holds may be freed: not under the lock
  running = frame.outer;
  lock.lock();
  m.frames.erase(std::find(m.frames.begin(), m.frames.end(), &frame));
  stream->busy = false;
  ++stream->completed;
  --m.pending;
  forget_if_drained(stream);
  wake_all();
}

std::size_t frames_here() {
  std::size_t frames = 0;
  for (const Running* frame = running; frame != nullptr; frame = frame->outer) ++frames;
  return frames;
}

std::string next_of(const Stream& stream) {
  for (const Running* frame : machine().frames) {
    if (frame->stream == &stream) return std::string(frame->what) + ", which runs,";
  }
  return stream.queue.empty() ? "nothing" : stream.queue.front().what;
}

hipError_t refuse_wait(const Ticket& ticket, const char* why) {
  say("deadlock: " + what_runs() + " waits for " + next_of(*ticket.stream) + " on " + ticket.stream->name() + ": " +
      why);
  return note(hipErrorUnknown);
}

// Nothing to run here: waits until another thread has done a piece of work. All frames whose threads sleep are counted,
// so that the last to fall asleep sees that no thread is left to wake it.
hipError_t sleep(Lock& lock, const Ticket& ticket) {
  Machine& m = machine();
  m.blocked += frames_here();
  const bool hopeless = m.blocked >= m.frames.size();
  const std::uint64_t before = m.changes;
  const auto limit = std::chrono::seconds(settings().timeout);
  if (!hopeless && m.changed.wait_for(lock, limit, [&] { return m.changes != before; })) return hipSuccess;
  m.blocked -= frames_here();
  return refuse_wait(ticket, hopeless ? "all work that runs waits for other work, and that can never come"
                                      : "nothing was done for SIMHIP_TIMEOUT seconds");
}

void work_beside() {  // the device's thread
  Machine& m = machine();
  Lock lock(m.mutex);
  for (;;) {
    StreamRef stream = next_of_all();
    if (!stream) {
      m.changed.wait(lock);
      continue;
    }
    if (settings().delay != 0) {
      const auto late = std::chrono::microseconds(m.random() % settings().delay);
      lock.unlock();
      std::this_thread::sleep_for(late);
      lock.lock();
      if (!is_ready(*stream)) continue;
    }
    run_next(lock, stream);
    if (m.random() % 64 == 0) new_weights();
  }
}

void work_off_backlog(Lock& lock) {
  Machine& m = machine();
  if (m.pending <= kBacklog || running != nullptr) return;
  while (m.pending > kBacklog / 2) {
    const StreamRef stream = next_of_all();
    if (!stream) return;
    run_next(lock, stream);
  }
}

// Work that a callback has queued while it ran is done as well.
hipError_t work_off_all(Lock& lock, const StreamRef& stream) {
  if (running != nullptr) return hipSuccess;
  if (const hipError_t error = wait_for(lock, tail_of(stream)); error != hipSuccess) return error;
  while (machine().pending != 0) {
    const StreamRef next = next_of_all();
    if (!next) break;
    run_next(lock, next);
  }
  return hipSuccess;
}

void wait_for_legacy(const StreamRef& stream, std::vector<Ticket>& after) {
  DeviceStreams& device = machine().devices[static_cast<std::size_t>(stream->device)];
  if (stream->is_null) {
    for (const StreamRef& other : device.streams) {
      if (other->blocking() && !other->idle()) after.push_back(tail_of(other));
    }
  } else if (stream->blocking() && !device.null_stream->idle()) {
    after.push_back(tail_of(device.null_stream));
  }
}

}  // namespace

hipError_t push(Lock& lock, const StreamRef& stream, const char* what, Run run, std::vector<Ticket> after) {
  Machine& m = machine();
  if (m.pending != 0) wait_for_legacy(stream, after);
  stream->queue.push_back({what, std::move(run), std::move(after), ++m.serial});
  ++stream->enqueued;
  ++m.pending;
  switch (settings().schedule) {
    case Schedule::sync: return work_off_all(lock, stream);
    case Schedule::eager:
      if (!m.pump) {
        m.pump = true;
        std::thread(work_beside).detach();
      }
      wake_all();
      break;
    case Schedule::lazy:
    case Schedule::adversarial: work_off_backlog(lock);
  }
  return hipSuccess;
}

hipError_t wait_for(Lock& lock, const Ticket& ticket) {
  if (is_done(ticket)) return hipSuccess;
  const Way way = new_way();
  while (!is_done(ticket)) {
    if (const StreamRef stream = next_for(ticket, way)) {
      run_next(lock, stream);
    } else if (const hipError_t error = sleep(lock, ticket); error != hipSuccess) {
      return error;
    }
  }
  return refuse_lost(ticket.stream->device);
}

hipError_t wait_for_device(Lock& lock, int device) {
  for (bool waited = true; waited;) {
    waited = false;
    std::vector<StreamRef> streams = machine().devices[static_cast<std::size_t>(device)].streams;
    std::shuffle(streams.begin(), streams.end(), machine().random);
    for (const StreamRef& stream : streams) {
      if (stream->idle()) continue;
      if (const hipError_t error = wait_for(lock, tail_of(stream)); error != hipSuccess) return error;
      waited = true;
    }
  }
  return hipSuccess;
}

bool is_done_after_some_work(Lock& lock, const Ticket& ticket) {
  const bool waits = settings().schedule == Schedule::lazy || settings().schedule == Schedule::adversarial;
  if (is_done(ticket) || !waits || machine().random() % 2 == 0) return is_done(ticket);
  const StreamRef stream = machine().random() % 4 != 0 ? next_of_all() : needed_for(ticket);
  if (stream && is_ready(*stream)) run_next(lock, stream);
  return is_done(ticket);
}

void let_others_run() {
  if (settings().schedule == Schedule::sync) return;
  Lock lock(machine().mutex);
  if (const StreamRef stream = next_of_all()) return run_next(lock, stream);
  if (settings().schedule != Schedule::eager || running == nullptr || ++running->naps > kMostNaps) return;
  lock.unlock();
  std::this_thread::sleep_for(kNap);  // the program may be about to ask for more
}

}  // namespace simhip
