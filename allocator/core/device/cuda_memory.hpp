// The memory of one CUDA device, as an upstream: what a pool takes from it and gives back.
//
// It comes in segments (segments.hpp), which keep the account, and after a second's worth of calls of the driver, from
// CUDA's stream-ordered allocator, which splits its memory. Before memory is freed, the pool waits for the work of the
// streams that it has served. It does not wait for the whole device, because that would destroy the captures of all
// streams; it does so only where one of its streams has ended and takes no event.
//
// While one of these streams is being captured it may not be given the end of memory from before, and cannot be waited
// for. So what goes back then goes later: with the next request after it. What a stream asks for in a capture is the
// graph's, which may be launched at any time: it goes with the pool.
//
// Any thread, at any time. CUDA is never called under the lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "cuda_api.hpp"
#include "plan.hpp"
#include "segments.hpp"

namespace stowplan::allocator {

struct CudaBlock {
  void* address = nullptr;
  Bytes size = 0;
  Stream stream = 0;
  Segments::Place place;  // or none:
  bool ordered = false;   // from the stream-ordered allocator
  bool guarded = false;   // other streams may still use it: they are waited for before it goes back
  bool of_graph = false;  // asked for in a capture
};

class CudaMemory {
 public:
  CudaMemory(const CudaApi& api, int device, Bytes limit) : api_(api), device_(device) { segments_.set_limit(limit); }
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // Null where there is none: then `error` says why.
  CudaBlock* take(Bytes size, Stream stream, CudaError& error) { return take(size, stream, false, error); }
  CudaBlock* take_for_all(Bytes size, CudaError& error) { return take(size, 0, true, error); }
  void give(CudaBlock* block);
  // Gives back to the device what is free.
  void trim();
  // The account of what is held.
  Segments& segments() { return segments_; }
  // All arenas are to have so many bytes from now on: what is free makes room.
  void note_arenas(Bytes size);

  // Whether a stream is another one than the last one that was noted.
  bool is_new(Stream stream) const { return stream != last_served_.load(std::memory_order_acquire); }
  // Notes that a stream uses the pool's memory.
  void note_stream(Stream stream);
  // Waits for all that these streams have been given; fails while one of them is being captured.
  CudaError synchronize();
  // Makes an event behind all that a stream has been given; fails while it is being captured.
  CudaError record(CudaEvent& event, Stream stream) const;
  void destroy(CudaEvent event) const;
  bool is_capturing();                     // one of them is
  bool is_capturing(Stream stream) const;  // or CUDA does not say

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
  // Whose segments blocks have that several streams use: all use of them is waited for before another one has them.
  static constexpr Stream kShared = INT64_MIN;

  CudaBlock* take(Bytes size, Stream stream, bool for_all, CudaError& error);
  std::vector<Stream> served();
  CudaError ask(CudaBlock& block, bool for_all);
  CudaError ask_ordered(CudaBlock& block);
  void note_ordered();
  bool may_go(const CudaBlock& block);
  void go(CudaBlock* block);
  void give_what_waits();
  // The stream-ordered allocator's, of our own: what others take from theirs is none of our business. All peers may use
  // its memory, as programs enable that for a device, which does not hold for such pools. Null: there is none.
  CudaMemoryPool memory_pool();
  CudaError checked(CudaError error) const { return api_.checked(error); }

  const CudaApi& api_;
  const int device_;
  Segments segments_{api_, device_, [](void* self) { return static_cast<CudaMemory*>(self)->synchronize() == 0; },
                     this};
  std::atomic<double> fraction_{0};
  std::atomic<bool> is_fraction_{false};  // the limit is yet to be made of it
  std::atomic<Bytes> ordered_{0};         // bytes of live blocks of the stream-ordered allocator
  std::atomic<Stream> last_served_{-1};
  std::mutex looking_;
  bool looked_ = false;
  std::atomic<CudaMemoryPool> memory_pool_{nullptr};
  std::mutex mutex_;
  std::set<Stream> served_;
  std::map<std::uintptr_t, CudaBlock*> blocks_;  // by address
  std::vector<CudaBlock*> waiting_;              // for captures to end
  std::atomic<bool> any_waits_{false};
};

}  // namespace stowplan::allocator
