#include "host_pool.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::allocator {

HostArena::HostArena(const Upstream& upstream, Bytes size)
    : upstream_(upstream),
      reserved_(static_cast<std::size_t>(size) + kHostAlignment),
      memory_(upstream.malloc(upstream.ctx, reserved_)),
      base_(memory_ == nullptr
                ? 0
                : (reinterpret_cast<std::uintptr_t>(memory_) + kHostAlignment - 1) / kHostAlignment * kHostAlignment) {}

HostArena::~HostArena() {
  if (memory_ != nullptr) upstream_.free(upstream_.ctx, memory_, reserved_);
}

HostArena::HostArena(HostArena&& other) noexcept
    : upstream_(other.upstream_),
      reserved_(other.reserved_),
      memory_(std::exchange(other.memory_, nullptr)),
      base_(std::exchange(other.base_, 0)) {}

HostArena& HostArena::operator=(HostArena&& other) noexcept {
  std::swap(upstream_, other.upstream_);
  std::swap(reserved_, other.reserved_);
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  return *this;
}

void HostReplay::own(HostArena arena, Bytes size) {
  reserve(arena.base(), size);
  owned_.push_back(std::move(arena));
}

std::vector<HostArena> HostReplay::take_dead() {
  std::vector<HostArena> dead;
  for (const std::uintptr_t base : take_dead_arenas()) {
    const auto at = std::find_if(owned_.begin(), owned_.end(), [=](const HostArena& a) { return a.base() == base; });
    dead.push_back(std::move(*at));
    owned_.erase(at);
  }
  return dead;
}

bool host_begin_step(HostMemory& memory, const PlanPtr& plan, const std::vector<PlanPtr>& others) {
  return memory.locked(
      [&](HostReplay& replay) { return replay.begin_step(profiler::current_thread(), plan, others); });
}

StepOutcome host_end_step(HostMemory& memory) {
  const auto dead = memory.locked([](HostReplay& replay) { return replay.take_dead(); });
  return memory.locked([](HostReplay& replay) { return replay.end_step(); });
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
  if (size <= memory.locked([](HostReplay& replay) { return replay.arena().size; })) return true;
  HostArena arena(memory.upstream(), size);
  if (arena.base() == 0) return false;
  memory.locked([&](HostReplay& replay) { replay.own(std::move(arena), size); });
  const auto dead = memory.locked([](HostReplay& replay) { return replay.take_dead(); });
  return true;
}

}  // namespace stowplan::allocator
