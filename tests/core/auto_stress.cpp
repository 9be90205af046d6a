// A pool that finds its steps by itself, with everybody at it at once, for sanitizer builds (make asan, make tsan).
//
// One thread repeats a loop and tells nobody; now and then it asks for something else. An outcome thread, as Python's
// own, waits for outcomes, makes a plan of them and says what to expect; others allocate beside, free the loop's
// blocks, and interrupt themselves. Every block carries a byte pattern that is checked when it dies.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "host_blocks.hpp"
#include "locked_lanes.hpp"

using namespace stress;

namespace {

constexpr int kRequests = 24;
constexpr int kLifetime = 5;  // a block is freed before the fifth request after its own
constexpr Bytes kUnit = 1024;
constexpr std::uint64_t kFound = 100;  // fewer steps than these say that the search does not work
static_assert(kRequests % (kLifetime + 1) == 0, "the slots of wrapped blocks must fit round the circle");

// The loop's step as it was found, which may begin anywhere in the loop; null where the log is something else.
PlanPtr plan_of(const StepOutcome& outcome, std::uint64_t tag) {
  auto plan = std::make_shared<Plan>();
  for (const Event& event : outcome.log) {
    if (event.kind == stowplan::profiler::EventKind::allocate) plan->requested.push_back(event.size);
  }
  if (plan->requested.size() != kRequests) return nullptr;
  std::vector<std::vector<RequestNumber>> due(kRequests + 1);
  for (RequestNumber j = 0; j < kRequests; ++j) {
    if (plan->requested[j] > kUnit || plan->requested[j] <= kUnit - kRequests) return nullptr;
    plan->stream.push_back(0);
    plan->capacity.push_back(kUnit);
    plan->offset.push_back(kUnit * ((kUnit - plan->requested[j]) % (kLifetime + 1)));
    due[(j + kLifetime) % kRequests].push_back(j);
  }
  plan->tag = tag;
  finish_plan(*plan, due, kUnit * (kLifetime + 1));
  return plan;
}

void collect(HostMemory& memory, LockedLanes& lanes) {
  std::uint64_t tag = 0;
  while (lanes.signal().wait()) {
    for (const LaneOutcome& lane : lanes.take_outcomes()) {
      const PlanPtr plan = plan_of(lane.outcome, ++tag);
      if (plan == nullptr) continue;
      if (!host_reserve(memory, lane.lane, plan->arena_bytes)) fail("no memory for an arena");
      lanes.expect({lane.lane, plan, {}, plan->arena_bytes, true}, tag % 2 == 0);
    }
  }
}

// Runs the loop `steps` times, and on until steps have been found: on a busy machine the outcome thread comes late.
void run_loop(HostMemory& memory, LockedLanes& lanes, Exchange& exchange, int steps) {
  const auto found = [&] {
    const Counters counters = lanes.counters();
    return counters.steps >= kFound && counters.requests[static_cast<std::size_t>(Reason::replayed)] > 0;
  };
  std::mt19937 random(1);
  std::deque<Held> alive;
  for (int step = 0; step < steps || (step < 100 * steps && !found()); ++step) {
    for (int i = 0; i < kRequests; ++i) {
      if (alive.size() >= kLifetime) {
        if (random() % 200 == 0) {
          exchange.put(alive.front());
        } else {
          drop(memory, alive.front());
        }
        alive.pop_front();
      }
      if (step % 40 == 39 && i % 6 == 0) drop(memory, allocate(memory, 3000, random));
      alive.push_back(allocate(memory, static_cast<std::size_t>(kUnit - i), random));
    }
  }
  for (const Held& block : alive) drop(memory, block);
}

void run_beside(HostMemory& memory, LockedLanes& lanes, Exchange& exchange, const std::atomic<bool>& running) {
  std::mt19937 random(2);
  for (unsigned round = 0; running; ++round) {
    Held block{};
    if (exchange.take(block, random)) drop(memory, block);
    if (round % 64 == 0) {
      if (round % 128 == 0) lanes.set_interrupted(true);
      drop(memory, allocate(memory, 500, random));
      lanes.set_interrupted(false);
    }
    std::this_thread::yield();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 1;
  HostMemory memory(kUpstream, 64);
  LockedLanes lanes(memory.lock(), memory.service().lanes());
  lanes.find_steps();
  Exchange exchange;
  std::atomic<bool> running{true};
  std::thread outcome_thread([&] { collect(memory, lanes); });
  std::vector<std::thread> beside;
  for (int i = 0; i < 2; ++i) beside.emplace_back([&] { run_beside(memory, lanes, exchange, running); });
  run_loop(memory, lanes, exchange, 2000 * scale);
  running = false;
  for (std::thread& thread : beside) thread.join();
  const Entered entered = lanes.enter();
  if (entered.step_slot < 0 || lanes.finds_steps()) fail("a marked step does not end the search");
  lanes.end(static_cast<StepSlotNumber>(entered.step_slot), entered.step);
  lanes.signal().close();
  outcome_thread.join();
  std::mt19937 random(3);
  for (Held block{}; exchange.take(block, random);) drop(memory, block);

  const Counters counters = lanes.counters();
  if (counters.live_bytes != 0 || counters.upstream_bytes != 0) fail("bytes are missing");
  if (counters.requests[static_cast<std::size_t>(Reason::replayed)] == 0) fail("nothing was replayed");
  if (counters.steps < kFound) fail("hardly a step was found");
  std::printf("auto_stress: %llu steps found, %llu requests replayed, no overlap, no byte lost\n",
              static_cast<unsigned long long>(counters.steps), static_cast<unsigned long long>(counters.requests[0]));
  return 0;
}
