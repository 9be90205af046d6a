// Eight threads on three streams each through one device pool at once, for sanitizer builds (make asan, make tsan).
//
// Every thread runs steps and allocates between them, frees what others have made, and holds blocks for other streams
// until somebody lets go of them or a request waits for them. The addresses are never looked at: who overlaps whom is
// what the core's invariants say, which are asserted after every change (STOWPLAN_DEBUG).

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "device_pool.hpp"

using namespace stowplan::allocator;

namespace {

constexpr unsigned kThreads = 8;
constexpr Stream kStreams[] = {0, 7, DevicePool::kPerThread};
constexpr Bytes kArena = Bytes{1} << 14;
constexpr RequestNumber kRequests = 8;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "device_stress: %s\n", what);
  std::exit(1);
}

// What the owner of a DevicePool does for it: upstream's addresses, and the books of held blocks.
class Owner {
 public:
  BlockId allocate(Bytes size, Stream stream) {
    const Grant grant = pool.request(size, stream);
    if (grant.address == 0) {
      pool.adopt(grant.id, next_.fetch_add(static_cast<std::uintptr_t>(size) + 1));
    } else if (grant.waits) {
      const std::vector<BlockId> awaited = pool.awaited(grant.id);
      if (awaited.empty()) fail("a request waits for nobody");
      for (const BlockId id : awaited) {
        std::lock_guard<std::mutex> lock(mutex_);
        held_.erase(id);
      }
      pool.drop_awaited(grant.id);
      ++waits;
    }
    return grant.id;
  }

  void free(BlockId id, unsigned choice) {
    if (choice % 3 != 0) return pool.release(id);
    std::lock_guard<std::mutex> lock(mutex_);
    held_.insert(id);
    pool.hold(id, choice % 2 == 0);
  }

  // As the GIL has it: nobody waits for a block while somebody lets go of it.
  void settle(std::mt19937& random) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = held_.begin(); at != held_.end();) {
      if (random() % 2 == 0) {
        ++at;
        continue;
      }
      pool.let_go(*at);
      at = held_.erase(at);
    }
  }

  void put(BlockId id) {
    std::lock_guard<std::mutex> lock(mutex_);
    passed_on_.push_back(id);
  }
  bool take(BlockId& id) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (passed_on_.empty()) return false;
    id = passed_on_.back();
    passed_on_.pop_back();
    return true;
  }
  void let_all_go() {
    for (const BlockId id : held_) pool.let_go(id);
    held_.clear();
  }
  std::uintptr_t new_arena() { return arenas_.fetch_add(static_cast<std::uintptr_t>(kArena)); }

  DevicePool pool;
  std::atomic<std::uint64_t> waits{0};

 private:
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 40};
  std::atomic<std::uintptr_t> arenas_{std::uintptr_t{1} << 45};
  std::mutex mutex_;
  std::set<BlockId> held_;
  std::vector<BlockId> passed_on_;
};

// Each block is freed before the next request, and all have one place.
PlanPtr make_plan() {
  auto plan = std::make_shared<Plan>();
  plan->due_begin.push_back(0);
  for (RequestNumber i = 0; i < kRequests; ++i) {
    plan->requested.push_back(600 + i);
    plan->stream.push_back(0);
    plan->capacity.push_back(1024);
    plan->offset.push_back(0);
    plan->due_begin.push_back(static_cast<std::uint32_t>(plan->due.size()));
    plan->due.push_back(i);
  }
  plan->due_begin.push_back(static_cast<std::uint32_t>(plan->due.size()));
  plan->arena_bytes = 1024;
  plan->derive();
  return plan;
}

void run(Owner& owner, unsigned seed, int steps) {
  std::mt19937 random(seed);
  const PlanPtr plan = make_plan();
  LockedLanes& lanes = *owner.pool.lanes();
  for (int step = 0; step < steps; ++step) {
    Entered entered = lanes.enter();
    if (entered.berth < 0) fail("this thread runs a step already");
    const auto mine = static_cast<BerthNumber>(entered.berth);
    if (entered.takes_over) entered.lanes = lanes.welcome(mine);
    std::vector<LaneStart> starts;
    for (const LaneNumber lane : entered.lanes) starts.push_back({lane, plan, {}, plan->arena_bytes, true});
    const bool may_wait = random() % 8 != 0;
    if (!lanes.begin(starts, may_wait, true)) {
      for (const LaneNumber lane : entered.lanes) {
        if (lanes.arena_size(lane) == 0) lanes.reserve(lane, owner.new_arena(), kArena);
      }
      lanes.begin(starts, may_wait, false);
    }
    for (RequestNumber i = 0; i < kRequests; ++i) {
      for (const Stream stream : kStreams) {
        if (random() % 16 == 0) continue;
        const BlockId id = owner.allocate(600 + static_cast<Bytes>(i), stream);
        if (random() % 8 == 0) {
          owner.put(id);
        } else {
          owner.free(id, random());
        }
      }
      BlockId theirs = 0;
      if (random() % 2 == 0 && owner.take(theirs)) owner.free(theirs, random());
    }
    if (lanes.end(mine).size() != entered.lanes.size()) fail("a step has one outcome a lane");
    owner.put(owner.allocate(static_cast<Bytes>(random() % 2000), kStreams[random() % 3]));
    if (random() % 4 == 0) owner.settle(random);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 1;
  Owner owner;
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= kThreads; ++seed) {
    threads.emplace_back([&, seed] { run(owner, seed, 40 * scale); });
  }
  for (std::thread& thread : threads) thread.join();
  owner.let_all_go();
  for (BlockId id = 0; owner.take(id);) owner.pool.release(id);
  owner.pool.lanes()->retire_idle_arenas();
  owner.pool.lanes()->take_dead_arenas();

  const Counters counters = owner.pool.lanes()->counters();
  if (counters.live_bytes != 0 || counters.upstream_bytes != 0 || counters.arena_bytes != 0) fail("bytes are missing");
  if (counters.requests[static_cast<std::size_t>(Reason::stream)] == 0) fail("no stream was new");
  if (owner.waits == 0) fail("nobody waited");
  std::printf("device_stress: %u threads, %llu requests replayed, %llu waited for other streams, no byte lost\n", kThreads,
              static_cast<unsigned long long>(counters.requests[0]), static_cast<unsigned long long>(owner.waits.load()));
  return 0;
}
