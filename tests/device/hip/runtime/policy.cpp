#include "policy.hpp"

#include <algorithm>
#include <cmath>

#include "settings.hpp"

namespace simhip {

namespace {

// Work inside work: a kernel that runs on this thread keeps its shared memory, so the same one does not start again.
bool runs_here(const char* what) {
  for (const Running* frame = running; frame != nullptr; frame = frame->outer) {
    if (frame->what == what || frame->part == what) return true;
  }
  return false;
}

bool may_run_here(const Stream& stream) {
  return is_ready(stream) && (stream.queue.front().run == nullptr || !runs_here(stream.queue.front().what));
}

StreamRef at_random() {
  double total = 0;
  StreamRef last;
  for (DeviceStreams& device : machine().devices) {
    for (StreamRef& stream : device.streams) {
      if (may_run_here(*stream)) {
        total += stream->weight;
        last = stream;
      }
    }
  }
  if (!last) return nullptr;
  double at = std::uniform_real_distribution<double>(0, total)(machine().random);
  for (DeviceStreams& device : machine().devices) {
    for (StreamRef& stream : device.streams) {
      if (may_run_here(*stream) && (at -= stream->weight) <= 0) return stream;
    }
  }
  return last;
}

StreamRef newest_first() {
  std::vector<StreamRef> waiting;
  for (DeviceStreams& device : machine().devices) {
    for (StreamRef& stream : device.streams) {
      if (!stream->queue.empty()) waiting.push_back(stream);
    }
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const StreamRef& a, const StreamRef& b) { return a->queue.back().serial > b->queue.back().serial; });
  for (const StreamRef& stream : waiting) {
    StreamRef needed = needed_for(tail_of(stream));
    if (needed && may_run_here(*needed)) return needed;
  }
  return nullptr;
}

bool is_adversarial() { return settings().schedule == Schedule::adversarial; }

}  // namespace

Way new_way() {
  if (settings().schedule == Schedule::sync) return {true};
  if (is_adversarial()) return {false};
  new_weights();
  return {machine().random() % 2 == 0};
}

StreamRef needed_for(const Ticket& ticket) {
  Ticket at = ticket;
  while (!is_done(at)) {
    if (at.stream->busy || at.stream->queue.empty()) return nullptr;
    const Ticket* newest = nullptr;
    for (const Ticket& before : at.stream->queue.front().after) {
      if (is_done(before)) continue;
      if (newest == nullptr || before.stream->number > newest->stream->number) newest = &before;
    }
    if (newest == nullptr) return at.stream;
    at = Ticket(*newest);
  }
  return nullptr;
}

StreamRef next_of_all() { return is_adversarial() ? newest_first() : at_random(); }

StreamRef next_for(const Ticket& ticket, Way way) {
  if (!way.only_needed) {
    if (StreamRef stream = next_of_all()) return stream;
  }
  StreamRef stream = needed_for(ticket);
  return stream && is_ready(*stream) ? stream : nullptr;
}

void new_weights() {
  Machine& m = machine();
  for (DeviceStreams& device : m.devices) {
    for (StreamRef& stream : device.streams) stream->weight = std::pow(10.0, -static_cast<double>(m.random() % 4));
  }
}

}  // namespace simhip
