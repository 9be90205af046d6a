// Arbitrary programs on a device pool, with an owner that fails, captures streams, and frees blocks from within its
// calls; for sanitizer builds (make asan, make tsan). First on one thread, where the owner keeps the books of what
// comes before what; then on eight threads at once.
//
//  - A block's uses come after all uses of the blocks that had its address before: on the same stream, by a wait, or
//    because the host has seen them done.
//  - A request fails only when nothing could be given back any more.
//  - The owner is never called under the pool's lock: each of its calls takes it.
//  - What the owner keeps for the pool is dropped, and once only. No byte is lost.
//  - Virtual memory is unmapped as it was mapped, and only when the host has seen all that streams do.
//
// The core's invariants are asserted after every change (STOWPLAN_DEBUG).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "device_owner.hpp"

using namespace device_stress;

namespace {

constexpr unsigned kThreads = 8;
constexpr unsigned kPrograms = 40;  // on one thread
constexpr Stream kStreams[] = {0, 7, DevicePool::kPerThread};
constexpr RequestNumber kRequests = 8;

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

// A thread's part of the program.
class Program {
 public:
  Program(Owner& owner, unsigned seed, bool alone) : owner_(owner), random_(seed), alone_(alone) {}

  void run(int steps) {
    LockedLanes& lanes = *owner_.pool.lanes();
    for (int step = 0; step < steps; ++step) {
      if (alone_) owner_.captured = random_() % 8 == 0;
      if (alone_) owner_.foreign = random_() % 4 == 0;
      if (random_() % 4 != 0) survives([&] { owner_.pool.settle(); });
      Entered entered = lanes.enter();
      if (entered.step_slot < 0) fail("this thread runs a step already");
      const auto mine = static_cast<StepSlotNumber>(entered.step_slot);
      if (entered.takes_over) {
        owner_.see_all();  // as the owner of steps does
        entered.lanes = lanes.welcome(mine);
      }
      std::vector<LaneStart> starts;
      for (const LaneNumber lane : entered.lanes) {
        const Bytes size = random_() % 8 == 0 ? kArena + 512 * step : kArena;
        if (!owner_.captured) survives([&] { owner_.pool.reserve(lane, size); });
        starts.push_back({lane, plan_, {}, plan_->arena_bytes, true});
      }
      const bool all_fit = random_() % 2 == 0;
      if (!lanes.begin(starts, !owner_.captured, all_fit) &&
          (!all_fit || !lanes.begin(starts, !owner_.captured, false))) {
        fail("a step did not begin");
      }
      for (RequestNumber i = 0; i < kRequests; ++i) {
        for (const Stream stream : kStreams) {
          if (random_() % 16 == 0) continue;
          allocate(600 + static_cast<Bytes>(i), stream);
          if (random_() % 8 != 0 && !blocks_.empty()) free_last();
        }
        if (random_() % 4 == 0) free_any();
        if (alone_) owner_.run_some(random_);
      }
      if (lanes.end(mine, entered.step).size() != entered.lanes.size()) fail("a step has one outcome a lane");
      survives([&] { owner_.pool.drop_dead_arenas(); });
      owner_.captured = owner_.foreign = false;
      allocate(static_cast<Bytes>(random_() % 2000), kStreams[random_() % 3]);
      while (blocks_.size() > 12) free_any();
      if (random_() % 16 == 0) survives([&] { owner_.pool.give_back(); });
    }
    while (!blocks_.empty()) free_last();
  }

  // As a finalizer would, within a call of the owner's.
  void free_any() {
    if (blocks_.empty()) return;
    std::swap(blocks_[random_() % blocks_.size()], blocks_.back());
    free_last();
  }

 private:
  struct Block {
    BlockId id = 0;
    std::uintptr_t address = 0;
    Bytes size = 0;
    Token memory = 0;  // upstream's
    Stream stream = 0;
    std::vector<Stream> others;
  };
  struct Use {
    std::uintptr_t begin, end;
    Stream stream;
    std::uint64_t number;
  };

  void allocate(Bytes size, Stream stream) {
    Grant grant;
    if (!survives([&] { grant = owner_.pool.request(size, stream); })) return;
    Block block{grant.id, grant.address, size, 0, stream, {}};
    if (grant.address == 0) {
      Token error = 0;
      const bool asked = survives([&] {
        const Answer answer =
            owner_.pool.ask_upstream(grant.id, size, static_cast<Reason>(grant.reason), &block.memory);
        block.address = answer.address;
        error = answer.error;
      });
      if (!asked || error != 0) {
        const bool is_told = owner_.faultless && !owner_.captured && !owner_.foreign;
        // Arenas in virtual memory have got back what did not help.
        if (is_told && !owner_.pool.has_virtual_memory() && owner_.pool.give_back() != 0) {
          fail("a request failed while something could be given back");
        }
        owner_.pool.release(grant.id);
        if (error != 0) owner_.drop(error);
        return;
      }
    } else if (alone_) {
      check_order(block);
    }
    for (const Stream other : {kStreams[0], kStreams[1], kStreams[2], kForeign}) {
      if (other != stream && random_() % 4 == 0) block.others.push_back(other);
    }
    if (alone_) note_uses(block);
    blocks_.push_back(std::move(block));
  }

  void free_last() {
    const Block block = std::move(blocks_.back());
    blocks_.pop_back();
    if (block.others.empty()) {
      owner_.pool.release(block.id);
      if (block.memory != 0) owner_.drop(block.memory);
      return;
    }
    if (block.memory != 0) owner_.guard(block.memory);
    std::vector<Token> streams;
    for (const Stream other : block.others) streams.push_back(owner_.new_stream(other));
    owner_.pool.hold(block.id, streams, block.memory);
    if (pending) fail("the end of a block raised an error");
  }

  // In an arena: those elsewhere come from upstream, which gives no address twice.
  void note_uses(const Block& block) {
    const auto end = block.address + static_cast<std::uintptr_t>(block.size);
    uses_.push_back({block.address, end, block.stream, owner_.use(block.stream)});
    for (const Stream other : block.others) uses_.push_back({block.address, end, other, owner_.use(other)});
  }
  void check_order(const Block& block) {
    const auto end = block.address + static_cast<std::uintptr_t>(block.size);
    for (const Use& use : uses_) {
      const bool overlaps = use.begin < end && block.address < use.end;
      if (overlaps && !owner_.precedes(use.stream, use.number, block.stream)) fail("a stream was not waited for");
    }
  }

  Owner& owner_;
  std::mt19937 random_;
  const bool alone_;
  const PlanPtr plan_ = make_plan();
  std::vector<Block> blocks_;
  std::vector<Use> uses_;
};

// All goes back, and nothing is left.
void finish(Owner& owner) {
  owner.fault_rate = 0;
  owner.finalizer = [] {};
  owner.pool.give_back();
  const Counters counters = owner.pool.lanes()->counters();
  if (counters.live_bytes != 0 || counters.upstream_bytes != 0 || counters.arena_bytes != 0) fail("bytes are missing");
  if (owner.things() != 0) fail("something was not dropped");
  owner.see_all();
  owner.pool.close();  // what it returns goes at once
  if (Mappings::any()) fail("something stays mapped");
}

// All calls of the owner's fail while arenas are given back: what streams may use stays mapped, and none is lost.
void fail_in_the_midst() {
  Owner owner(kArena);
  owner.pool.use_virtual_memory(Mappings::functions());
  Mappings::before_unmapping() = [&owner] {
    if (!owner.has_seen_all()) fail("memory is unmapped after an error that a stream may use");
  };
  Program(owner, 1, true).run(4);
  if (owner.pool.lanes()->counters().arena_bytes == 0) fail("there is no arena");
  owner.see_all();
  owner.pool.settle();
  owner.use(0);
  owner.fault_rate = 1;
  if (owner.pool.give_back() != 0) fail("something was given back that streams may use");
  finish(owner);
}

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 1;
  std::uint64_t replayed = 0, waits = 0, settled = 0, failures = 0, strangers = 0;
  const auto add = [&](Owner& owner) {
    finish(owner);
    const Counters counters = owner.pool.lanes()->counters();
    replayed += counters.of(Reason::replayed);
    strangers += counters.of(Reason::stream);
    waits += owner.waits;
    settled += owner.settled;
    failures += owner.pool.lanes()->failure().number;
  };
  for (unsigned seed = 1; seed <= kPrograms * static_cast<unsigned>(scale); ++seed) {
    Owner owner(Bytes{seed % 4 + 3} << 12);
    if (seed % 3 == 0) owner.pool.use_virtual_memory(Mappings::functions());
    Mappings::before_unmapping() = [&owner] {
      if (!owner.has_seen_all()) fail("memory is unmapped that a stream may use");
    };
    Program program(owner, seed, true);
    owner.faultless = seed % 2 == 0;
    owner.fault_rate = owner.faultless ? 0 : 50;
    int depth = 0;
    std::mt19937 random(seed);
    owner.finalizer = [&] {
      if (owner.faultless || depth != 0 || random() % 8 != 0) return;
      ++depth;
      const bool before = std::exchange(pending, false);  // as Python's finalizers find it
      program.free_any();
      pending = before;
      --depth;
    };
    program.run(30);
    add(owner);
  }
  fail_in_the_midst();
  Mappings::before_unmapping() = [] {};
  if (replayed == 0 || waits == 0 || settled == 0 || failures == 0 || strangers == 0) fail("a path was never taken");

  for (const bool has_virtual_memory : {false, true}) {
    Owner owner(Bytes{1} << 18);
    if (has_virtual_memory) owner.pool.use_virtual_memory(Mappings::functions());
    owner.faultless = false;
    owner.fault_rate = 100;
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= kThreads; ++seed) {
      threads.emplace_back([&, seed] { Program(owner, seed, false).run(40 * scale); });
    }
    for (std::thread& thread : threads) thread.join();
    add(owner);
  }
  std::printf(
      "device_stress: %llu requests replayed, %llu waited for other streams, %llu events seen done, "
      "%llu failures of upstream, no address too early, no byte lost\n",
      static_cast<unsigned long long>(replayed), static_cast<unsigned long long>(waits),
      static_cast<unsigned long long>(settled), static_cast<unsigned long long>(failures));
  return 0;
}
