// Threads that allocate and free through one pool at once, for sanitizer builds (make asan, make tsan).
//
// Eight threads each repeat a step against a plan, all at once, with extra, missing, larger and smaller requests thrown
// in and blocks kept far too long; they allocate between their steps, and free each other's blocks.
// Every block carries a byte pattern that is checked when it dies: an overlap shows as a broken pattern, a race as a
// TSan report, and every change asserts the core's invariants (STOWPLAN_DEBUG).

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "host_pool.hpp"
#include "locked_lanes.hpp"
#include "stress.hpp"

using namespace stowplan::allocator;
using stress::fail;

namespace {

void* up_malloc(void*, std::size_t size) { return std::malloc(size); }
void* up_calloc(void*, std::size_t n, std::size_t size) { return std::calloc(n, size); }
void* up_realloc(void*, void* p, std::size_t size) { return std::realloc(p, size); }
void up_free(void*, void* p, std::size_t) { std::free(p); }
const stowplan::Upstream kUpstream{nullptr, up_malloc, up_calloc, up_realloc, up_free};

struct Held {
  unsigned char* ptr;
  std::size_t size;
  unsigned char pattern;
};

Held allocate(HostMemory& memory, std::size_t size, std::mt19937& random) {
  const auto pattern = static_cast<unsigned char>(random());
  auto* ptr = static_cast<unsigned char*>(random() % 8 == 0 ? memory.calloc(1, size) : memory.malloc(size));
  if (ptr == nullptr) fail("out of memory");
  std::memset(ptr, pattern, size);
  return {ptr, size, pattern};
}

void drop(HostMemory& memory, const Held& block) {
  for (std::size_t i = 0; i < block.size; ++i) {
    if (block.ptr[i] != block.pattern) fail("a block's bytes were overwritten while it was alive");
  }
  memory.free(block.ptr, block.size);
}

// Blocks on their way from one thread to another.
class Exchange {
 public:
  void put(const Held& block) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_back(block);
  }
  bool take(Held& block, std::mt19937& random) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.empty()) return false;
    std::swap(blocks_[random() % blocks_.size()], blocks_.back());
    block = blocks_.back();
    blocks_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Held> blocks_;
};

constexpr unsigned kThreads = 8;
constexpr int kRequests = 24;
constexpr int kLifetime = 5;  // block i is freed before request i + kLifetime; the last ones wrap

// A valid plan by construction: blocks alive together stand in different slots of equal capacity.
std::shared_ptr<const Plan> make_plan(Bytes unit) {
  auto plan = std::make_shared<Plan>();
  std::vector<std::vector<RequestNumber>> due(kRequests + 1);
  for (int i = 0; i < kRequests; ++i) {
    plan->requested.push_back(1024 - i);
    plan->stream.push_back(0);
    plan->capacity.push_back(unit);
    plan->offset.push_back(i == 7 ? kUnplanned : unit * (i % (kLifetime + 1)));
    if (i != 7) due[(i + kLifetime) % kRequests].push_back(i);
  }
  for (const auto& numbers : due) {
    plan->due_begin.push_back(static_cast<std::uint32_t>(plan->due.size()));
    plan->due.insert(plan->due.end(), numbers.begin(), numbers.end());
  }
  plan->due_begin.push_back(static_cast<std::uint32_t>(plan->due.size()));
  plan->arena_bytes = unit * (kLifetime + 1);
  plan->derive();
  return plan;
}
static_assert(kRequests % (kLifetime + 1) == 0, "the slots of wrapped blocks must fit round the circle");

// One thread: steps against a plan, and blocks passed on to the others and taken from them.
void run_steps(HostMemory& memory, Exchange& exchange, unsigned seed, int steps) {
  LockedLanes lanes(memory.lock(), memory.service().lanes());
  std::mt19937 random(seed);
  std::vector<std::pair<int, Held>> alive;  // (steps * kRequests at which it is due, block)
  int clock = 0;
  PlanPtr plan;
  for (int step = 0; step < steps; ++step) {
    const Entered entered = lanes.enter();
    if (entered.step_slot < 0) fail("this thread runs a step already");
    const LaneNumber lane = entered.lanes.front();
    if (step % 20 == 5) plan = make_plan(1024 + 64 * static_cast<Bytes>(random() % 4));
    if (plan && !host_reserve(memory, lane, plan->arena_bytes)) fail("no memory for an arena");
    std::vector<LaneStart> starts{{lane, plan, {}, plan ? plan->arena_bytes : 0, step % 3 != 0}};
    if (!lanes.begin(starts, true)) fail("an arena is too small");
    for (int i = 0; i < kRequests; ++i, ++clock) {
      alive.erase(std::remove_if(alive.begin(), alive.end(),
                                 [&](const auto& x) {
                                   if (x.first > clock) return false;
                                   drop(memory, x.second);
                                   return true;
                                 }),
                  alive.end());
      Held theirs;
      if (random() % 8 == 0 && exchange.take(theirs, random)) drop(memory, theirs);
      std::size_t size = 1024 - static_cast<std::size_t>(i);
      switch (random() % 60) {
        case 0: size += 4096; break;                                             // larger
        case 1: size /= 2; break;                                                // smaller
        case 2: continue;                                                        // missing
        case 3: drop(memory, allocate(memory, random() % 3000, random)); break;  // extra
        case 4:
        case 5: exchange.put(allocate(memory, size, random)); continue;  // freed on another thread, some time
        case 6: lanes.set_interrupted(true); break;
        case 7: lanes.set_interrupted(false); break;
        case 8: lanes.counters(); break;
        case 9: host_trim(memory); break;
        default: break;
      }
      const int keep = random() % 25 == 0 ? 60 : kLifetime;  // late
      alive.emplace_back(clock + keep, allocate(memory, size, random));
    }
    const auto mine = static_cast<StepSlotNumber>(entered.step_slot);
    if (lanes.end(mine, entered.step).size() != 1) fail("a step has one outcome a lane");
    exchange.put(allocate(memory, random() % 2000, random));  // in no step
  }
  for (const auto& x : alive) drop(memory, x.second);
}

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 1;
  HostMemory memory(kUpstream, 64);
  Exchange exchange;
  std::mt19937 random(0);
  drop(memory, allocate(memory, 1000, random));  // in no step while nobody runs one
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= kThreads; ++seed) {
    threads.emplace_back([&, seed] { run_steps(memory, exchange, seed, 60 * scale); });
  }
  for (std::thread& thread : threads) thread.join();
  for (Held block{}; exchange.take(block, random);) drop(memory, block);

  LockedLanes lanes(memory.lock(), memory.service().lanes());
  host_trim(memory);
  const Counters counters = lanes.counters();
  if (counters.arena_bytes != 0) fail("where nothing lives, all pages go back");
  if (counters.live_bytes != 0 || counters.upstream_bytes != 0) fail("bytes are missing");
  if (counters.requests[static_cast<std::size_t>(Reason::replayed)] == 0) fail("nothing was replayed");
  for (const Reason reason :
       {Reason::outside, Reason::thread, Reason::interrupted, Reason::escaped, Reason::late, Reason::mismatch}) {
    if (counters.requests[static_cast<std::size_t>(reason)] == 0) fail("a path was never taken");
  }
  std::printf(
      "replay_stress: %u threads, %llu requests replayed, %llu smaller, %llu missing, no overlap, no byte lost\n",
      kThreads, static_cast<unsigned long long>(counters.requests[0]),
      static_cast<unsigned long long>(counters.smaller), static_cast<unsigned long long>(counters.missing));
  return 0;
}
