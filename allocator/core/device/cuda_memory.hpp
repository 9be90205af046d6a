// The memory of one CUDA device, as an upstream: what a pool takes from it and gives back.
//
// What one stream asks for comes from CUDA's stream-ordered allocator, which keeps what it is given back: neither costs
// a wait. What all streams use (arenas, the pools of graphs), what is asked for in a capture, and all of a device
// without that allocator, comes from cudaMalloc, and the device is waited for before it goes back.
//
// While a stream is being captured it may not be given the end of memory from before, and no thread may wait for
// the device. So what goes back then goes later: with the next request after it.
//
// Any thread, at any time. CUDA is never called under the lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "cuda_api.hpp"
#include "plan.hpp"

namespace stowplan::allocator {

struct CudaBlock {
  void* address = nullptr;
  Bytes size = 0;
  Stream stream = 0;
  bool ordered = false;  // from the stream-ordered allocator
  bool guarded = false;  // other streams may still use it: the device is waited for before it goes back
};

class CudaMemory {
 public:
  CudaMemory(const CudaApi& api, int device, Bytes limit) : api_(api), device_(device), limit_(limit) {}
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // Null where there is none: then `error` says why.
  CudaBlock* take(Bytes size, Stream stream, CudaError& error) { return take(size, stream, true, error); }
  CudaBlock* take_for_all(Bytes size, CudaError& error) { return take(size, 0, false, error); }
  void give(CudaBlock* block);
  // Gives back to the device what the stream-ordered allocator keeps.
  void trim();

  // Fails during a capture: one that begin_capture() told of, of a blocking stream, or of the stream that this thread
  // asked on last. Another thread's capture of a non-blocking stream is not seen.
  CudaError synchronize();
  // Notes the stream of this thread's request, for synchronize().
  static void asks(Stream stream);
  bool is_capturing(Stream stream) const;  // or CUDA does not say
  void begin_capture() { ++captures_; }
  void end_capture() { --captures_; }

  // Bytes that all blocks may take together; 0: as many as there are.
  Bytes limit() const { return limit_; }
  void set_limit(Bytes limit) { limit_ = limit; }
  // Bytes that the device has; false: CUDA does not say.
  bool info(std::size_t& free, std::size_t& total) const;
  // The block that an address lies in: its first address, and its size. Null: in none.
  void* base_of(void* address, std::size_t& size);

  const CudaApi& api() const { return api_; }
  int device() const { return device_; }

 private:
  using Lock = std::lock_guard<std::mutex>;

  CudaBlock* take(Bytes size, Stream stream, bool may_be_ordered, CudaError& error);
  CudaError ask(CudaBlock& block, bool may_be_ordered);
  bool may_go(const CudaBlock& block);
  void go(CudaBlock* block);
  void give_what_waits();
  CudaMemoryPool memory_pool();
  CudaError checked(CudaError error) const { return api_.checked(error); }

  const CudaApi& api_;
  const int device_;
  std::atomic<Bytes> limit_;
  std::atomic<Bytes> taken_{0};
  std::atomic<int> captures_{0};  // that are known to run on the device
  std::mutex looking_;
  bool looked_ = false;
  CudaMemoryPool memory_pool_ = nullptr;  // what the stream-ordered allocator takes from; null: there is none
  std::mutex mutex_;
  std::map<std::uintptr_t, CudaBlock*> blocks_;  // by address
  std::vector<CudaBlock*> waiting_;              // for captures to end
  std::atomic<bool> any_waits_{false};
};

}  // namespace stowplan::allocator
