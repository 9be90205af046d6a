// The memory of CUDA graphs: a pool of its own for each set of graphs that share one, as PyTorch asks for.
//
// A graph that is launched again writes to the addresses that it was captured with, whether their blocks were freed in
// the capture or not. So what a capture asks for comes from segments that belong to its pool, and no other request gets
// them until the pool is released. A block that is freed is given again to the same stream, in the same pool; one that
// other streams have used is not.
//
// O(segments of the pool and stream, and what is free in them) per request: captures are rare.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda_memory.hpp"

namespace stowplan::allocator {

// PyTorch's: its MempoolId_t, and whether a stream's requests belong to a capture.
using GraphPoolId = std::pair<unsigned long long, unsigned long long>;
using StreamFilter = std::function<bool(CudaStream)>;

class CudaGraphs {
 public:
  explicit CudaGraphs(CudaMemory& memory) : memory_(memory) {}
  ~CudaGraphs();

  // From now on until end(), requests of the streams that `filter` knows are served from this pool. As many release()
  // as begin(), and the end of its last block, are the end of the pool.
  void begin(GraphPoolId id, StreamFilter filter);
  void end(GraphPoolId id);
  void release(GraphPoolId id);

  // Whether requests are looked at.
  bool any_begun() const { return captures_ != 0; }
  // False: the stream is none of a capture's. Else `address` is the block's, or null and `error` says why.
  bool request(Bytes size, Stream stream, void*& address, CudaError& error);
  // False: not a block of a graph's.
  bool free(void* address);
  bool record_stream(void* address, Stream stream);

  Bytes reserved_bytes() const { return reserved_bytes_; }

 private:
  static constexpr Bytes kSegment = Bytes{2} << 20;

  struct Pool {
    int uses = 0;
    std::size_t live = 0;
    std::vector<CudaBlock*> segments;
    std::map<Stream, std::vector<std::unique_ptr<Page>>> pages;  // what is free in them
  };
  using PoolPtr = std::shared_ptr<Pool>;
  struct Block {
    PoolPtr pool;
    Bytes size;
    Stream stream;
    Page* page;
    bool is_shared;  // other streams have used it
  };
  struct Capture {
    GraphPoolId id;
    StreamFilter filter;
  };

  PoolPtr pool_of(Stream stream);
  bool place(const PoolPtr& pool, Bytes size, Stream stream, void*& address);
  void give(const std::vector<CudaBlock*>& segments);

  CudaMemory& memory_;
  std::atomic<int> captures_{0};
  std::atomic<Bytes> reserved_bytes_{0};
  std::mutex mutex_;
  std::vector<Capture> running_;
  std::map<GraphPoolId, PoolPtr> pools_;
  std::unordered_map<void*, Block> blocks_;
};

}  // namespace stowplan::allocator
