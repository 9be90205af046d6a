// The memory of one CUDA device, as an upstream: what a pool takes from it and gives back.
//
// It comes from a heap (device_heap.hpp), which keeps the account; or from an allocator of the program's (`Allocator`),
// for all requests, or for those of steps without a plan. Before memory that several streams use is freed, the
// pool waits for the work of the streams that it has served. It does not wait for the whole device, because that would
// destroy the captures of all streams; it does so only where one of its streams has ended and takes no event.
//
// While one of these streams is being captured it may not be given the end of memory from before, and cannot be waited
// for. So what goes back then goes later: with the next request after it. What a stream asks for in a capture is the
// graph's, which may be launched at any time: it goes when the driver says that the graph has gone, or with the pool.
//
// A stream that the program drops leaves: an event stands for its work, and its handle may be another one's. Another
// library's stream that has gone, or one in a capture, has no event: then the pool waits for the device.
//
// Any thread, at any time. CUDA is never called under the lock, nor is the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <vector>

#include "cuda_api.hpp"
#include "device_heap.hpp"
#include "plan.hpp"

namespace stowplan::allocator {

// The program's functions; none throws. 0 as `self`: there are none.
struct Allocator {
  void* self = nullptr;
  bool serves_all = false, serves_samples = false;
  // Returns an error; or an address, and the number by which give() takes the memory back. `client`: null for an arena.
  CudaError (*take)(void* self, void* client, Bytes size, std::uintptr_t* address, std::uint64_t* memory) = nullptr;
  void (*give)(void* self, std::uint64_t memory) = nullptr;
  void (*trim)(void* self) = nullptr;
  // Drops garbage that may hold blocks; whether there is sense in asking for memory once more.
  bool (*collect)(void* self) = nullptr;
  // Whether the program has dropped a stream that is being captured; then it is none of the pool's any more.
  bool (*has_dropped)(void* self, Stream stream) = nullptr;
};

// Whose memory it is to be: of a stream, of none (an arena's), or of a step without a plan.
struct Wanted {
  Bytes size = 0;
  Stream stream = 0;
  bool for_all = false, is_sample = false;
  void* client = nullptr;
};

// CUDA refuses something in the midst of a call.
struct Refusal : std::exception {
  explicit Refusal(CudaError error) : error(error) {}
  CudaError error;
};

// A graph that has memory; and what tells the pool to look whether graphs have gone, which may outlive it.
struct GraphLife {
  std::atomic<bool> is_over{false};
  std::shared_ptr<std::atomic<bool>> any_news;
};

struct CudaBlock {
  void* address = nullptr;
  Bytes size = 0;
  Stream stream = 0;
  DeviceHeap::Place place;
  std::uint64_t foreign = 0;         // or the program's memory
  bool guarded = false;              // other streams may still use it: they are waited for before it goes back
  std::shared_ptr<GraphLife> graph;  // that was being captured when it was asked for
};

class CudaMemory final : private DeviceHeap::Owner {
 public:
  CudaMemory(const CudaApi& api, int device, Bytes limit) : api_(api), device_(device) { heap_.set_limit(limit); }
  ~CudaMemory();

  // Once, before all else.
  void use(const Allocator& allocator) { program_ = allocator; }
  const Allocator& program() const { return program_; }
  // Null where there is none: then `error` says why.
  CudaBlock* take(const Wanted& wanted, CudaError& error);
  void give(CudaBlock* block);
  // The same, with the next request: nothing of CUDA's is called now.
  void put_off(CudaBlock* block);
  // Gives back what waits for a capture to end, or for another thread.
  void settle();
  // Gives back to the device what is free.
  void trim();
  DeviceHeap& heap() { return heap_; }

  // Whether a stream is another one than the last one that was noted.
  bool is_new(Stream stream) const { return stream != last_served_.load(std::memory_order_acquire); }
  // Notes that a stream uses the pool's memory.
  void note_stream(Stream stream);
  // The program drops a stream; false: not now, as it is being captured, or as `if_idle` and it has work to do.
  bool leave(Stream stream, bool if_idle);
  // A stream has gone. Called anywhere, by a finalizer, too: the heap hears of it with the next request.
  void lose(Stream stream);
  std::uint64_t losses() const { return losses_; }
  // How many have left or gone; those that have not.
  std::uint64_t departures() const { return departures_; }
  std::vector<Stream> served();
  bool is_served(Stream stream);
  // Waits for all that these streams have been given; fails while one of them is being captured.
  CudaError synchronize() override;
  // Makes an event behind all that a stream has been given. kCudaCaptureUnsupported: not now; kCudaInvalidHandle: it
  // has left.
  CudaError record_if_served(CudaEvent& event, Stream stream);
  // Has a stream wait for an event; whether an event is over. Refusal: CUDA does not say.
  void wait(Stream stream, CudaEvent event) const;
  bool is_over(CudaEvent event) const;
  void destroy(CudaEvent event) const;
  bool is_capturing() override;  // one of them is

  // Bytes that all blocks may take together; 0: as many as there are.
  Bytes limit();
  // Limits them to a share of the device, which is asked for its size only when it is used: that makes a context.
  void set_fraction(double fraction) {
    fraction_ = fraction;
    is_fraction_ = true;
  }
  // Bytes that the device has; false: CUDA does not say.
  bool info(std::size_t& free, std::size_t& total) const;
  // The block that an address lies in: its first address, and its size. Null: in none.
  void* base_of(void* address, std::size_t& size);

  const CudaApi& api() const { return api_; }
  int device() const { return device_; }

 private:
  using Lock = std::lock_guard<std::mutex>;
  bool is_capturing(Stream stream);
  bool is_idle(Stream stream);
  void erase(Stream stream);
  CudaError mark(std::vector<CudaEvent>& events, std::size_t& used) override;
  CudaError order(Stream stream, CudaEvent event) override;
  CudaError end_left(bool waits) override;
  std::shared_ptr<GraphLife> begin_life(Stream stream) const;
  CudaError ask(CudaBlock& block, const Wanted& wanted);
  bool may_go(const CudaBlock& block);
  void go(CudaBlock* block);
  CudaError checked(CudaError error) const { return api_.checked(error); }

  const CudaApi& api_;
  const int device_;
  std::atomic<double> fraction_{0};
  std::atomic<bool> is_fraction_{false};  // the limit is yet to be made of it
  std::atomic<Stream> last_served_{-1};
  std::mutex mutex_;
  std::set<Stream> served_;
  bool has_own_ = false;       // the legacy stream stands for threads' own, too
  std::shared_mutex streams_;  // guards them: none goes while CUDA is asked of it. Nobody waits for the GIL under it
  std::vector<Stream> lost_;   // of which the heap has not heard
  std::atomic<std::uint64_t> losses_{0}, departures_{0};
  std::atomic<std::uint64_t> awaited_{0};  // the work of so many losses is over
  using Left = std::shared_ptr<CUevent_st>;
  std::vector<Left> left_;  // events behind the work of streams that have left
  Allocator program_;
  std::map<std::uintptr_t, CudaBlock*> blocks_;  // by address
  std::vector<CudaBlock*> waiting_;              // for captures to end
  std::vector<CudaBlock*> of_graphs_;            // which are there
  // Whether settle() has something to look at.
  std::shared_ptr<std::atomic<bool>> any_waits_ = std::make_shared<std::atomic<bool>>(false);
  // The last member, as its destructor uses the others.
  DeviceHeap heap_{api_, device_, *this};
};

// An event, and memory, that go with the end of a scope.
struct Destroy {
  const CudaMemory* memory;
  void operator()(CudaEvent event) const { memory->destroy(event); }
};
using OwnEvent = std::unique_ptr<CUevent_st, Destroy>;
struct GiveBack {
  CudaMemory* memory;
  void operator()(CudaBlock* block) const { memory->give(block); }
};
using OwnBlock = std::unique_ptr<CudaBlock, GiveBack>;

}  // namespace stowplan::allocator
