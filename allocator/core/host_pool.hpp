// The replay core as the service of a HostMemory, and what needs both: steps of this thread, and arenas made of
// upstream's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "host_memory.hpp"
#include "replay.hpp"

namespace stowplan::allocator {

using profiler::Upstream;

// Widest vector loads and a cache line: more than NumPy's default promises.
constexpr std::size_t kHostAlignment = 64;

// Upstream's memory for one arena.
class HostArena {
 public:
  HostArena(const Upstream& upstream, Bytes size);
  ~HostArena();
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&& other) noexcept;

  std::uintptr_t base() const { return base_; }  // aligned; 0 where upstream had no memory

 private:
  Upstream upstream_;
  std::size_t reserved_;
  void* memory_;
  std::uintptr_t base_;
};

// Replay that owns its arenas.
class HostReplay : public Replay {
 public:
  explicit HostReplay(const Upstream&) {}
  void own(HostArena arena, Bytes size);
  std::vector<HostArena> take_dead();  // to be destroyed by the caller, outside the lock

 private:
  std::vector<HostArena> owned_;
};

using HostMemory = profiler::HostMemory<HostReplay>;

bool host_begin_step(HostMemory& memory, const PlanPtr& plan, const std::vector<PlanPtr>& others);
StepOutcome host_end_step(HostMemory& memory);
void host_set_timestamps(HostMemory& memory, bool on);
Counters host_counters(HostMemory& memory);
void host_reset_peaks(HostMemory& memory);

void host_set_interrupted(HostMemory& memory, bool interrupted);

// Makes the arena at least this large; the former one goes when nothing lives in it any more.
// False, and nothing changed, where upstream has no memory for it.
bool host_reserve(HostMemory& memory, Bytes size);

}  // namespace stowplan::allocator
