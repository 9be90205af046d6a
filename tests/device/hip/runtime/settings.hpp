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
  sync,         // work is done when the call that queues it returns
  lazy,         // work waits until the program waits for it; then streams take turns at random
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
  std::size_t delay;      // microseconds at most before a piece of work (eager)
  std::size_t backlog;    // pieces of work that wait at most
  std::size_t timeout;    // seconds without progress, then a wait fails
  bool poison;            // new memory is full of NaNs
  bool freed_is_pattern;  // freed memory is full of NaNs; otherwise nothing may touch it
  bool check;             // what work uses is held against what is alive
  Faults faults;
  bool refuse_host;     // host code may not touch device memory
  bool gil;             // a call that may wait is a fault where its thread holds Python's GIL
  bool dead_handles;    // a call that names what was destroyed is a fault; otherwise an error
  bool peers_of_pools;  // a device's peers may use what its memory pools hold; otherwise hipMemPoolSetAccess says who
  bool memory_pools;
  int virtual_memory;  // 0: there is none; 2: the device says that there is, and nothing can be mapped
  bool mapping_waits;  // hipMemSetAccess and hipMemUnmap wait for the device
  bool trace;
  bool profile;
};

const Settings& settings();

}  // namespace simhip
