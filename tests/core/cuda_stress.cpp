// Arbitrary programs through the exported C functions, on a simulated CUDA (simulated_cuda.hpp) that fails, captures
// streams and keeps the books of what comes before what; for sanitizer builds (make asan, make tsan). Steps of each
// scope, first on one thread, then on six threads at once, which share streams, and so lanes.
//
//  - No two live blocks overlap, nor a block with what a graph was captured with, until its pool is released.
//  - Whoever is given an address comes after all uses of its former blocks; so does memory that goes back or is
//    unmapped. Blocks in virtual memory have memory.
//  - A request fails only with an exception, when nothing could be given back any more, and leaves no error of CUDA's
//    behind.
//  - What is asked of CUDA may fail, and run finalizers, which free blocks, as Python does. It is never asked under the
//    pool's lock: each of its calls takes that.
//  - Every byte and every event goes back.
//
// The core's invariants are asserted after every change (STOWPLAN_DEBUG).

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "books.hpp"
#include "simulated_cuda.hpp"

using namespace simulated;
using stress::Books;

extern "C" {
void* stow_cuda_malloc(std::size_t size, int device, CudaStream stream);
void stow_cuda_free(void* ptr, std::size_t size, int device, CudaStream stream);
void stow_cuda_record_stream(void* ptr, CudaStream stream);
void stow_cuda_reset();
void stow_cuda_memory_fraction(double fraction, int device);
void* stow_cuda_base_alloc(void* ptr, std::size_t* size);
void stow_cuda_begin_pool(int device, GraphPoolId id, StreamFilter filter);
void stow_cuda_end_pool(int device, GraphPoolId id);
void stow_cuda_release_pool(int device, GraphPoolId id);
}

namespace {

constexpr unsigned kThreads = 6;
constexpr Stream kStreams[] = {0, 64, 128}, kStranger = 256, kOwn = kPerThread;
constexpr RequestNumber kRequests = 32;
constexpr Bytes kSize = 1000, kSlot = 1024;
constexpr unsigned kPlaces = 4;

std::atomic<std::uint64_t> operations{0}, failures{0};

// Each block lives for three requests.
PlanPtr make_plan() {
  auto plan = std::make_shared<Plan>();
  for (RequestNumber i = 0; i <= kRequests; ++i) {
    plan->due_begin.push_back(static_cast<std::uint32_t>(plan->due.size()));
    for (RequestNumber j = i < 3 ? kRequests : i - 3; j + 3 <= i || (i == kRequests && j < kRequests); ++j) {
      plan->due.push_back(j);
    }
    if (i == kRequests) break;
    plan->requested.push_back(kSize);
    plan->stream.push_back(0);
    plan->capacity.push_back(kSlot);
    plan->offset.push_back(kSlot * static_cast<Bytes>(i % kPlaces));
  }
  plan->due_begin.push_back(static_cast<std::uint32_t>(plan->due.size()));
  plan->arena_bytes = kSlot * kPlaces;
  plan->derive();
  return plan;
}

class Program {
 public:
  Program(CudaPools& pools, Books& books, unsigned seed, bool alone, bool runs_steps)
      : pool_(pools.on(0)), books_(books), random_(seed), alone_(alone), runs_steps_(runs_steps) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      const bool in_step = runs_steps_ && begin(static_cast<Bytes>(random_() % 6) << 12);
      const Stream captured = alone_ && random_() % 8 == 0 ? kStreams[1] : Cuda::kNone;
      if (captured != Cuda::kNone) begin_capture(captured);
      const bool untold = alone_ && captured == Cuda::kNone && random_() % 8 == 0;
      if (untold) begin_untold_capture();
      for (RequestNumber i = 0; i < kRequests; ++i) {
        const Stream stream = random_() % 16 == 0 ? kOwn : kStreams[random_() % 4 == 0 ? random_() % 3 : 0];
        allocate(random_() % 16 == 0 ? static_cast<Bytes>(random_() % 5000) : kSize, stream, captured);
        while (blocks_.size() > 2 && random_() % 16 != 0) free_at(0);
        if (random_() % 8 == 0 && !blocks_.empty()) free_at(random_() % blocks_.size());
        if (random_() % 4 == 0) Cuda::get().run_some(random_);
      }
      if (captured != Cuda::kNone) end_capture();
      if (in_step) end();
      if (untold && random_() % 2 == 0) stow_cuda_reset();
      if (untold) end_untold_capture();
      while (blocks_.size() > 12) free_at(random_() % blocks_.size());
      if (random_() % 16 == 0) stow_cuda_reset();
      if (random_() % 4 == 0) pool_.settle();
      if (alone_ && random_() % 8 == 0) release_graph();
      if (Cuda::last_error() != kCudaSuccess && Cuda::last_error() != 400) fail("an error of CUDA's was left behind");
      if (Cuda::current_device() != 0) fail("the current device has changed");
    }
    while (!blocks_.empty()) free_at(0);
    release_graph();
  }

  // A block beside the plan lies where two planned ones belong, and is held. While the stream is about to be told to
  // wait for its uses, for the first of them, another thread asks for the second.
  void take_two_places() {
    if (!begin()) fail("there is no step");
    allocate(2 * kSize, kStreams[0], Cuda::kNone);
    const auto guest = reinterpret_cast<std::uintptr_t>(blocks_.back().address);
    Cuda::get().order(kStreams[0], kStreams[1]);
    Cuda::get().use(blocks_.back().address, 2 * kSize, kStreams[1], blocks_.back().number);
    stow_cuda_record_stream(blocks_.back().address, stream_handle(kStreams[1]));
    free_at(blocks_.size() - 1);
    std::future<void*> second;
    Cuda::get().before_wait = [&] {
      if (second.valid()) return;
      second = std::async(std::launch::async, [] { return stow_cuda_malloc(kSize, 0, stream_handle(kStreams[0])); });
      if (second.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) fail("a place came too early");
    };
    void* first = stow_cuda_malloc(kSize, 0, stream_handle(kStreams[0]));
    Cuda::get().before_wait = [] {};
    if (!second.valid()) fail("nothing was waited for");
    for (void* block : {first, second.get()}) {
      if (reinterpret_cast<std::uintptr_t>(block) - guest >= 2 * kSlot) fail("the place is not the former block's");
      stow_cuda_free(block, kSize, 0, stream_handle(kStreams[0]));
    }
    end();
  }

  // As a finalizer would, within a call of the owner's.
  void free_any() {
    const std::size_t at = blocks_.empty() ? 0 : random_() % blocks_.size();
    if (!blocks_.empty() && blocks_[at].others.empty()) free_at(at);
  }

 private:
  struct Block {
    void* address = nullptr;
    Bytes size = 0;
    Stream stream = 0;
    std::vector<Stream> others;
    std::uint64_t number = 0;
    bool of_graph = false;
  };

  bool begin(Bytes more = 0) {
    LockedLanes& lanes = *pool_.lanes();
    Entered entered = lanes.enter();
    if (entered.step_slot < 0) return false;  // another thread's step
    step_slot_ = static_cast<StepSlotNumber>(entered.step_slot);
    step_ = entered.step;
    if (entered.takes_over) {
      if (pool_.make_idle()) entered.lanes = lanes.welcome(step_slot_);
    }
    std::vector<LaneStart> starts;
    for (const LaneNumber lane : entered.lanes) {
      pool_.reserve(lane, plan_->arena_bytes + more);
      starts.push_back({lane, plan_, {}, plan_->arena_bytes, true});
    }
    return lanes.begin(starts, false);
  }
  void end() {
    pool_.lanes()->end(step_slot_, step_);
    try {
      pool_.pool().drop_dead_arenas();
    } catch (const Refusal&) {
    }
  }

  void begin_capture(Stream stream) {
    stow_cuda_begin_pool(0, kGraph, [stream](CudaStream asking) { return asking == stream_handle(stream); });
    ++graph_uses_;
    Cuda::get().captured = stream;
  }
  void end_capture() {
    Cuda::get().captured = Cuda::kNone;
    stow_cuda_end_pool(0, kGraph);
  }
  // Of a stream that nobody else uses, by somebody who does not tell the pool.
  void begin_untold_capture() {
    Cuda::get().captures_apart = random_() % 2 == 0;
    if (!Cuda::get().captures_apart) Cuda::get().captured = kStranger;
  }
  void end_untold_capture() {
    Cuda::get().captures_apart = false;
    Cuda::get().captured = Cuda::kNone;
  }
  void release_graph() {
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      if (i < blocks_.size() && blocks_[i].of_graph) free_at(i);
    }
    if (graph_uses_ > 0) pool_.make_idle();
    for (; graph_uses_ > 0; --graph_uses_) stow_cuda_release_pool(0, kGraph);
    for (const auto& [address, size] : of_graph_) books_.remove(address);
    of_graph_.clear();
  }

  void allocate(Bytes size, Stream stream, Stream captured) {
    ++operations;
    const Bytes asked = size;
    Block block{nullptr, size, stream, {}, ++numbers_, stream == captured};
    try {
      block.address = stow_cuda_malloc(static_cast<std::size_t>(asked), 0, stream_handle(stream));
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("CUDA") != 0) fail("an exception that says nothing");
      ++failures;
      const Cuda& cuda = Cuda::get();
      const bool is_told = alone_ && cuda.fault_rate == 0 && cuda.captured == Cuda::kNone && !cuda.captures_apart;
      // Arenas in virtual memory have got back what did not help.
      if (is_told && !pool_.pool().has_virtual_memory() && pool_.give_back() != 0) {
        fail("a request failed while something could be given back");
      }
      return;
    }
    if (size == 0) {
      if (block.address != nullptr) fail("a block of no bytes");
      return;
    }
    if (block.address == nullptr) fail("a request failed without a word");
    if (!block.of_graph) {
      books_.add(block.address, size);
    } else if (of_graph_.count(block.address) == 0 || of_graph_[block.address] < size) {
      if (of_graph_.count(block.address) != 0) books_.remove(block.address);
      remember(block.address, size);
    }
    std::size_t found = 0;
    auto* base = static_cast<char*>(stow_cuda_base_alloc(block.address, &found));
    const bool is_virtual = found == 0 && pool_.pool().has_virtual_memory();  // it has none that others could open
    if (base > block.address || (!is_virtual && base + found < static_cast<char*>(block.address) + size)) {
      fail("a block has no base");
    }
    Cuda& cuda = Cuda::get();
    if (!block.of_graph) cuda.use(block.address, size, stream, block.number);
    for (const Stream other : kStreams) {
      if (other == stream || other == captured || random_() % 4 != 0) continue;
      if (block.of_graph) {
        stow_cuda_record_stream(block.address, stream_handle(other));
        continue;
      }
      cuda.order(stream, other);
      cuda.use(block.address, size, other, block.number);
      block.others.push_back(other);
    }
    blocks_.push_back(std::move(block));
  }
  // Until the pool of the graph is released nobody else has it, whether it is free or not.
  void remember(void* address, Bytes size) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    for (auto at = of_graph_.begin(); at != of_graph_.end();) {  // what the same pool gave there before
      const auto other = reinterpret_cast<std::uintptr_t>(at->first);
      const bool overlaps =
          other < begin + static_cast<std::uintptr_t>(size) && begin < other + static_cast<std::uintptr_t>(at->second);
      if (overlaps && at->first != address) books_.remove(at->first);
      at = overlaps ? of_graph_.erase(at) : std::next(at);
    }
    books_.add(address, size);
    of_graph_[address] = size;
  }

  void free_at(std::size_t at) {
    ++operations;
    const Block block = std::move(blocks_[at]);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
    for (const Stream other : block.others) {
      if (random_() % 4 == 0 && Cuda::get().captured == Cuda::kNone) {
        Cuda::get().order(other, block.stream);  // the program's own way
      } else {
        stow_cuda_record_stream(block.address, stream_handle(other));
      }
    }
    if (!block.of_graph) books_.remove(block.address);
    stow_cuda_free(block.address, static_cast<std::size_t>(block.size), 0, stream_handle(block.stream));
  }

  static constexpr GraphPoolId kGraph{1, 2};
  static inline std::atomic<std::uint64_t> numbers_{0};

  CudaPool& pool_;
  Books& books_;
  std::mt19937 random_;
  const bool alone_, runs_steps_;
  const PlanPtr plan_ = make_plan();
  StepSlotNumber step_slot_ = 0;
  std::uint64_t step_ = 0;
  std::vector<Block> blocks_;
  std::map<void*, Bytes> of_graph_;
  int graph_uses_ = 0;
};

std::uint64_t replayed = 0, strangers = 0, unmapped = 0;

// All goes back, and nothing is left.
void finish(std::unique_ptr<CudaPools> pools) {
  Cuda& cuda = Cuda::get();
  cuda.fault_rate = 0;
  cuda.capacity = Bytes{1} << 40;
  pools->give_back();
  const Counters counters = pools->on(0).lanes()->counters();
  if (counters.live_bytes != 0 || counters.upstream_bytes != 0 || counters.arena_bytes != 0) fail("bytes are missing");
  replayed += counters.of(Reason::replayed);
  strangers += counters.of(Reason::stream);
  unmapped += counters.of(Reason::unmapped);
  CudaPools::install(nullptr);
  pools.reset();
  if (cuda.blocks() != 0 || cuda.in_use() != 0 || cuda.events != 0 || cuda.pieces() != 0) {
    fail("something did not go back");
  }
}

std::unique_ptr<CudaPools> install(unsigned seed) {
  CudaApi api = Cuda::get().api();
  api.has_virtual_memory = seed / 2 % 2 == 1;
  auto pools = std::make_unique<CudaPools>(api, static_cast<Scope>(seed % 2), 0);
  CudaPools::install(pools.get());
  pools->on(0).memory().heap().set_page(4096);
  return pools;
}

// PyTorch does not end the pool of a capture that CUDA has ended with an error: nothing waits for that for ever.
void leave_a_capture_open() {
  auto pools = install(1);
  const GraphPoolId id{7, 7};
  stow_cuda_begin_pool(0, id, [](CudaStream) { return false; });
  void* block = stow_cuda_malloc(5000, 0, stream_handle(0));
  stow_cuda_record_stream(block, stream_handle(64));
  stow_cuda_free(block, 5000, 0, stream_handle(0));
  if (!pools->on(0).reserve(0, 4096)) fail("a capture that has failed keeps an arena from a lane");
  stow_cuda_release_pool(0, id);
  finish(std::move(pools));
}

// Nor an arena: what is shared by streams has had no stream's memory that was not waited for.
void capture_beside_a_stream_that_works() {
  auto pools = install(4);
  const GraphPoolId id{8, 8};
  const Bytes size = Bytes{2} << 20;
  void* block = stow_cuda_malloc(static_cast<std::size_t>(size), 0, stream_handle(0));
  Cuda::get().use(block, size, 0, 1);
  stow_cuda_free(block, static_cast<std::size_t>(size), 0, stream_handle(0));
  stow_cuda_begin_pool(0, id, [](CudaStream stream) { return stream == stream_handle(64); });
  void* graphs = stow_cuda_malloc(static_cast<std::size_t>(size), 0, stream_handle(64));
  Cuda::get().use(graphs, size, 64, 2);
  stow_cuda_free(graphs, static_cast<std::size_t>(size), 0, stream_handle(64));
  stow_cuda_end_pool(0, id);
  stow_cuda_release_pool(0, id);
  finish(std::move(pools));
}

// A held guest lies over the places of two requests. The stream's wait for the first is not issued yet when another
// thread asks for the second: it must not have its place before.
void share_a_held_place(Books& books) {
  auto pools = install(7);
  {
    Program program(*pools, books, 1, true, true);
    program.take_two_places();
  }
  finish(std::move(pools));
}

// While the driver makes a page for a small block, another thread asks for one: no page stays empty.
void take_two_pages() {
  auto pools = install(1);
  std::future<void*> second;
  const auto ask = [] { return stow_cuda_malloc(100, 0, stream_handle(kStreams[0])); };
  Cuda::get().within = [&] {
    if (second.valid()) return;
    second = std::async(std::launch::async, ask);
    second.wait_for(std::chrono::milliseconds(50));
  };
  for (void* block : {ask(), second.get()}) stow_cuda_free(block, 100, 0, stream_handle(kStreams[0]));
  Cuda::get().within = [] {};
  finish(std::move(pools));
}

// All calls of the driver's fail while arenas are given back: what streams may use stays mapped, and none is lost.
void fail_in_the_midst(Books& books) {
  auto pools = install(6);
  {
    Program(*pools, books, 1, true, true).run(6);
    pools->on(0).memory().trim();
    const Bytes arenas = Cuda::get().in_use();
    if (arenas == 0) fail("there is no arena");
    Cuda::get().fault_rate = 1;
    pools->on(0).give_back();
    Cuda::get().fault_rate = 0;
    if (Cuda::get().in_use() != arenas) fail("an arena went that streams may use");
  }
  finish(std::move(pools));
}

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 1;
  Cuda& cuda = Cuda::get();
  Books books;
  for (unsigned seed = 1; seed <= 24 * static_cast<unsigned>(scale); ++seed) {
    auto pools = install(seed);
    cuda.fault_rate = seed % 2 == 0 ? 50 : 0;
    cuda.capacity = seed % 3 == 0 ? Bytes{1} << 40 : seed % 3 == 1 ? Bytes{9} << 20 : Bytes{seed % 4 + 5} << 12;
    if (seed % 5 == 0) stow_cuda_memory_fraction(0.5, 0);
    {
      Program program(*pools, books, seed, true, true);
      bool finalizes = false;
      std::mt19937 random(seed);
      cuda.within = [&] {
        pools->on(0).lanes()->counters();  // under whose lock no call is made
        if (cuda.fault_rate == 0 || finalizes || random() % 8 != 0) return;
        finalizes = true;
        program.free_any();
        finalizes = false;
      };
      program.run(20);
      cuda.within = [] {};
    }
    finish(std::move(pools));
  }
  leave_a_capture_open();
  capture_beside_a_stream_that_works();
  share_a_held_place(books);
  take_two_pages();
  fail_in_the_midst(books);
  const std::uint64_t failed_alone = failures;
  if (replayed == 0 || strangers == 0 || unmapped == 0 || cuda.waits == 0 || failed_alone == 0)
    fail("a path was never taken");

  for (unsigned seed = 1; seed <= 3 * static_cast<unsigned>(scale); ++seed) {
    auto pools = install(seed);
    cuda.fault_rate = seed % 2 == 0 ? 100 : 0;
    cuda.capacity = seed % 3 == 0 ? Bytes{24} << 12 : Bytes{1} << 20;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, seed, i] { Program(*pools, books, kThreads * seed + i, false, i % 2 == 0).run(20); });
    }
    for (std::thread& thread : threads) thread.join();
    finish(std::move(pools));
  }
  std::printf(
      "cuda_stress: %llu operations, %llu requests replayed, %llu waited for other streams, %llu failures, no address "
      "too early, no byte lost\n",
      static_cast<unsigned long long>(operations), static_cast<unsigned long long>(replayed),
      static_cast<unsigned long long>(cuda.waits), static_cast<unsigned long long>(failures));
  return 0;
}
