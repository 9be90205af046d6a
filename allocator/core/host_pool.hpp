// The replay core as the service of a HostMemory, and what needs both: steps of this thread, and the arena's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "auto_replay.hpp"
#include "host_memory.hpp"

namespace stowplan::allocator {

using profiler::Upstream;

// Widest vector loads and a cache line: more than NumPy's default promises.
constexpr Bytes kHostAlignment = 64;

// An arena that grows in place: a wide range of addresses is set aside (which takes no memory), and as much of it is
// made usable as is asked for. So a larger plan never needs a second arena beside the first.
class HostArena {
 public:
  HostArena() = default;
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // False, and nothing changed, where the system has no memory or no addresses for it.
  bool grow(Bytes size);
  std::uintptr_t base() const { return reinterpret_cast<std::uintptr_t>(memory_); }
  Bytes size() const { return size_; }
  std::size_t addresses() const { return addresses_; }

 private:
  bool set_aside(std::size_t bytes);

  void* memory_ = nullptr;
  std::size_t addresses_ = 0;
  Bytes size_ = 0;
};

// A replay core that owns its arena.
class HostReplay : public AutoReplay {
 public:
  explicit HostReplay(const Upstream&) : AutoReplay(kHostAlignment) {}
  bool grow(Bytes size);
  const HostArena& memory() const { return memory_; }

 private:
  HostArena memory_;
};

using HostMemory = profiler::HostMemory<HostReplay>;

bool host_begin_step(HostMemory& memory, const PlanPtr& plan, const std::vector<PlanPtr>& others);
StepOutcome host_end_step(HostMemory& memory);
void host_set_timestamps(HostMemory& memory, bool on);
Counters host_counters(HostMemory& memory);
void host_reset_peaks(HostMemory& memory);

void host_find_steps(HostMemory& memory);
void host_expect(HostMemory& memory, const PlanPtr& plan, const std::vector<PlanPtr>& others, bool wanted);
std::vector<StepOutcome> host_take_outcomes(HostMemory& memory);
Signal& host_signal(HostMemory& memory);

void host_set_interrupted(HostMemory& memory, bool interrupted);

// Makes the arena at least this large. False, and nothing changed, where there is no memory for it.
bool host_reserve(HostMemory& memory, Bytes size);

}  // namespace stowplan::allocator
