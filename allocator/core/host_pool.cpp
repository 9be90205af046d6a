#include "host_pool.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace stowplan::allocator {

namespace {

constexpr std::size_t kMostAddresses = std::size_t{1} << 40;
constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::size_t kWorthHugePages = std::size_t{1} << 22;  // as NumPy's own handler has it

std::size_t round_up(std::size_t x, std::size_t unit) { return (x + unit - 1) / unit * unit; }

}  // namespace

HostArena::~HostArena() {
  if (memory_ != nullptr) munmap(memory_, addresses_);
}

bool HostArena::grow(Bytes size) {
  if (size <= size_) return true;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t wanted = round_up(static_cast<std::size_t>(size), page);
  if (memory_ == nullptr && !set_aside(wanted)) return false;
  if (wanted > addresses_ || mprotect(memory_, wanted, PROT_READ | PROT_WRITE) != 0) return false;
#ifdef MADV_HUGEPAGE
  if (wanted >= kWorthHugePages) madvise(memory_, round_up(wanted, kHugePage), MADV_HUGEPAGE);
#endif
  size_ = size;
  return true;
}

// The widest range that the system allows (an address space limit may be set), aligned to huge pages.
bool HostArena::set_aside(std::size_t least) {
  for (std::size_t bytes = kMostAddresses; bytes >= least + kHugePage; bytes /= 2) {
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(range);
    const std::size_t lead = round_up(begin, kHugePage) - begin;
    if (lead > 0) munmap(range, lead);
    memory_ = reinterpret_cast<void*>(begin + lead);
    addresses_ = bytes - lead;
    return true;
  }
  return false;
}

bool HostReplay::grow(Bytes size) {
  if (!memory_.grow(size)) return false;
  reserve(memory_.base(), memory_.size());
  return true;
}

bool host_begin_step(HostMemory& memory, const PlanPtr& plan, const std::vector<PlanPtr>& others) {
  return memory.locked(
      [&](HostReplay& replay) { return replay.begin_step(profiler::current_thread(), plan, others); });
}

StepOutcome host_end_step(HostMemory& memory) {
  return memory.locked([](HostReplay& replay) { return replay.end_step(); });
}

void host_find_steps(HostMemory& memory) {
  memory.locked([](HostReplay& replay) { replay.find_steps(); });
}

void host_expect(HostMemory& memory, const PlanPtr& plan, const std::vector<PlanPtr>& others, bool wanted) {
  memory.locked([&](HostReplay& replay) { replay.expect(plan, others, wanted); });
}

std::vector<StepOutcome> host_take_outcomes(HostMemory& memory) {
  return memory.locked([](HostReplay& replay) { return replay.take_outcomes(); });
}

Signal& host_signal(HostMemory& memory) {
  return *memory.locked([](HostReplay& replay) { return &replay.signal(); });
}

void host_set_timestamps(HostMemory& memory, bool on) {
  memory.locked([=](HostReplay& replay) { replay.set_timestamps(on); });
}

Counters host_counters(HostMemory& memory) {
  return memory.locked([](HostReplay& replay) { return replay.counters(); });
}

void host_reset_peaks(HostMemory& memory) {
  memory.locked([](HostReplay& replay) { replay.reset_peaks(); });
}

void host_set_interrupted(HostMemory& memory, bool interrupted) {
  memory.locked([=](HostReplay& replay) { replay.set_interrupted(profiler::current_thread(), interrupted); });
}

bool host_reserve(HostMemory& memory, Bytes size) {
  return memory.locked([&](HostReplay& replay) {
    if (replay.arena().size >= size) return true;
    if (!replay.grow(size)) return false;
    const HostArena& arena = replay.memory();
    memory.set_arena(arena.base(), arena.base() + arena.addresses());
    return true;
  });
}

}  // namespace stowplan::allocator
