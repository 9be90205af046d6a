// What the variables SIMHIP_* choose, read once, when the library is first used.
//
// A value that cannot be read ends the process with one sentence: a test that runs with another setting than it asked
// for shows nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simhip {

enum class Faults {
  stop,   // the process
  count,  // what is wrong is left out
  stick,  // ends the device's context (contexts.hpp)
};

enum class Schedule {
  lazy,         // work waits until the program waits for it; then streams take turns at random
  sync,         // work is done when the call that queues it returns
  eager,        // a thread of the device works beside the program, with random delays
  adversarial,  // work waits as in lazy; then the newest goes first, and only what it waits for goes before it
};

struct Settings {
  int devices;
  std::size_t memory;         // bytes of each device
  std::size_t context;        // bytes of a device that a process takes which uses it
  std::size_t granularity;    // bytes: an allocation takes a multiple
  std::size_t page;           // bytes: the least that virtual memory is mapped in
  std::size_t address_space;  // bytes of addresses of each device
  Schedule schedule;
  std::uint64_t seed;
  std::size_t delay;    // microseconds at most before a piece of work (eager)
  std::size_t timeout;  // seconds without progress, then a wait fails
  Faults faults;
  bool refuse_host;  // host code may not touch device memory
  bool gil;          // a call that may wait is a fault where its thread holds Python's GIL
  bool memory_pools;
  int virtual_memory;  // 0: there is none; 2: the device says that there is, and nothing can be mapped
  bool mapping_waits;  // hipMemSetAccess and hipMemUnmap wait for the device
  bool trace;
};

const Settings& settings();

}  // namespace simhip
