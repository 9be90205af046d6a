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

bool host_begin_step(HostMemory& memory) {
  return memory.locked([](HostReplay& replay) { return replay.begin_step(profiler::current_thread()); });
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

bool host_install(HostMemory& memory, const std::shared_ptr<const Plan>& plan) {
  const Bytes wanted = plan->arena_bytes;
  const Bytes current = memory.locked([](HostReplay& replay) { return replay.arena().size; });
  if (wanted > current) {
    HostArena arena(memory.upstream(), wanted);
    if (arena.base() == 0) return false;
    memory.locked([&](HostReplay& replay) { replay.own(std::move(arena), wanted); });
  }
  memory.locked([&](HostReplay& replay) { replay.install(plan); });
  // The arena that was replaced goes now where nothing lives in it, else at the end of a later step.
  const auto dead = memory.locked([](HostReplay& replay) { return replay.take_dead(); });
  return true;
}

}  // namespace stowplan::allocator
