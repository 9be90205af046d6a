// What comes before what on a device whose streams run nothing: a kernel is a number, and these are the books.
//
// What a stream is given comes after all that it was given before, after the moments that it was told to wait for with
// all that came before these, and after all that the host had seen done. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>

#include "plan.hpp"

namespace simulated {

using stowplan::allocator::Stream;

class HappensBefore {
  using Clock = std::map<Stream, std::uint64_t>;  // of each stream, how many of its kernels

 public:
  // All that a stream was given, as an event records it.
  struct Moment {
    Stream stream = 0;
    std::uint64_t number = 0;
    Clock before;
  };

  // Give a stream a kernel; return its number.
  std::uint64_t give(Stream stream) { return ++given_[stream]; }
  // Some of what was given ends.
  void run_some(std::mt19937& random) {
    for (const auto& [stream, number] : given_) finished_[stream] += random() % (number - finished_[stream] + 1);
  }
  // The host synchronizes with the device: it has seen all kernels done.
  void see_all() { seen_ = finished_ = given_; }
  bool has_seen_all() const { return seen_ == given_; }

  Moment now(Stream stream) { return {stream, given_[stream], awaited_[stream]}; }
  // Whether a moment is over, which the host then has seen.
  bool see(const Moment& moment) {
    if (finished_[moment.stream] < moment.number) return false;
    for (const auto& [other, number] : moment.before) {
      if (finished_[other] < number) return false;
    }
    await(moment);
    return true;
  }
  // The host waits for a moment, and has seen all that came before it.
  void await(const Moment& moment) {
    for (Clock* clock : {&finished_, &seen_}) {
      for (const auto& [other, number] : moment.before) raise(*clock, other, number);
      raise(*clock, moment.stream, moment.number);
    }
  }
  // What the stream is given from now on comes after a moment.
  void follow(Stream stream, const Moment& moment) {
    Clock& awaited = awaited_[stream];
    for (const auto& [other, number] : moment.before) raise(awaited, other, number);
    raise(awaited, moment.stream, moment.number);
  }
  // Whether the host has seen a kernel done.
  bool has_seen(Stream stream, std::uint64_t number) { return seen_[stream] >= number; }
  // Whether a kernel comes before what a stream is given now.
  bool precedes(Stream stream, std::uint64_t number, Stream later) {
    return stream == later || has_seen(stream, number) || awaited_[later][stream] >= number;
  }

 private:
  static void raise(Clock& clock, Stream stream, std::uint64_t number) {
    clock[stream] = std::max(clock[stream], number);
  }

  Clock given_, finished_, seen_;    // seen: by the host
  std::map<Stream, Clock> awaited_;  // what each stream was told to wait for
};

}  // namespace simulated
