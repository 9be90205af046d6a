// Streams, and when their work runs.
//
//   stream 1   [kernel][record e]                       A piece of work runs when all before it in its stream are done,
//   stream 2   [wait e][kernel]        host: wait ----> and what its tickets name. Which of the pieces that may run is
//   legacy     [memset]                                 next is the schedule's choice (policy.hpp): any order that the
//                                                       program has not ruled out is right, and the worst is wanted.
//
// A ticket (stream, number) is done when the stream has completed so many pieces. Tickets name only work that is queued
// already, so they have no cycle; a wait can still be for ever, where running work waits for itself, and is refused.
//
// One lock, the device's, guards all of it. Work runs outside the lock, on the thread that waits for it; in the eager
// schedule on a thread of the device too. Choosing costs O(streams) a piece.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "hip.hpp"
#include "running.hpp"

namespace simhip {

struct Stream;
struct Capture;
using StreamRef = std::shared_ptr<Stream>;
using Lock = std::unique_lock<std::mutex>;
using Run = std::function<void()>;

struct Ticket {
  StreamRef stream;
  std::uint64_t number = 0;
};

struct Work {
  const char* what;
  Run run;  // null: only its place in the order counts
  std::vector<Ticket> after;
  std::uint64_t serial;  // in the order in which the program asked
};

struct Stream {
  int device = 0;
  int priority = 0;
  unsigned flags = 0;
  unsigned number = 0;  // of the process, for reports
  bool is_null = false;
  bool is_per_thread = false;
  bool busy = false;
  bool destroyed = false;
  double weight = 1;  // how often it gets its turn
  std::deque<Work> queue;
  std::uint64_t enqueued = 0;
  std::uint64_t completed = 0;
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> capture_tail;

  bool blocking() const { return !is_null && (flags & hipStreamNonBlocking) == 0; }
  bool idle() const { return completed == enqueued; }
  std::string name() const;
};

struct DeviceStreams {
  StreamRef null_stream;
  std::vector<StreamRef> streams;  // those alive, and those with work left
};

struct Machine {
  Machine();

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<DeviceStreams> devices;
  std::map<hipStream_t, StreamRef> handles;
  std::mt19937_64 random;
  std::vector<Running*> frames;  // all work that runs now
  std::uint64_t pending = 0;
  std::uint64_t serial = 0;
  std::uint64_t changes = 0;  // how often sleepers were woken
  std::size_t blocked = 0;    // frames whose threads wait, and have found nothing since the last piece was done
  unsigned streams_made = 0;
  bool pump = false;
};

Machine& machine();
StreamRef new_stream(int device, unsigned flags, int priority);
void forget_if_drained(const StreamRef& stream);

inline Ticket tail_of(const StreamRef& stream) { return {stream, stream->enqueued}; }
inline bool is_done(const Ticket& ticket) { return !ticket.stream || ticket.stream->completed >= ticket.number; }

// Whether the stream's next piece of work may run.
bool is_ready(const Stream& stream);

// Queues a piece of work behind the stream's others, and behind what the legacy default stream makes it wait for.
hipError_t push(Lock& lock, const StreamRef& stream, const char* what, Run run, std::vector<Ticket> after = {});

// Runs work until the ticket is done. hipErrorUnknown, and a report, where that cannot come.
hipError_t wait_for(Lock& lock, const Ticket& ticket);
hipError_t wait_for_device(Lock& lock, int device);

// Whether it is done. A program that asks again and again gets on.
bool is_done_after_some_work(Lock& lock, const Ticket& ticket);

// Called by work that is late: lets one piece of another stream run, if there is one.
void let_others_run();

}  // namespace simhip
