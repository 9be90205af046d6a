#include "cuda_graphs.hpp"

#include <algorithm>

namespace stowplan::allocator {

using Lock = std::unique_lock<std::mutex>;

CudaGraphs::~CudaGraphs() {
  for (const auto& [id, pool] : pools_) give(pool->segments);
}

void CudaGraphs::begin(GraphPoolId id, StreamFilter filter) {
  const Lock lock(mutex_);
  PoolPtr& pool = pools_[id];
  if (pool == nullptr) pool = std::make_shared<Pool>();
  ++pool->uses;
  running_.push_back({id, std::move(filter)});
  ++captures_;
}

void CudaGraphs::end(GraphPoolId id) {
  const Lock lock(mutex_);
  const auto is_its = [&](const Capture& capture) { return capture.id == id; };
  const auto at = std::find_if(running_.begin(), running_.end(), is_its);
  if (at == running_.end()) return;
  running_.erase(at);
  --captures_;
}

void CudaGraphs::release(GraphPoolId id) {
  std::vector<CudaBlock*> segments;
  {
    const Lock lock(mutex_);
    const auto at = pools_.find(id);
    if (at == pools_.end() || --at->second->uses > 0) return;
    if (at->second->live == 0) segments.swap(at->second->segments);
    pools_.erase(at);  // its live blocks keep it
  }
  give(segments);
}

CudaGraphs::PoolPtr CudaGraphs::pool_of(Stream stream) {
  for (const Capture& capture : running_) {
    if (capture.filter(stream_handle(stream))) return pools_[capture.id];
  }
  return nullptr;
}

bool CudaGraphs::request(Bytes size, Stream stream, void*& address, CudaError& error) {
  size = (size + DeviceHeap::kUnit - 1) / DeviceHeap::kUnit * DeviceHeap::kUnit;
  Lock lock(mutex_);
  const PoolPtr pool = pool_of(stream);
  if (pool == nullptr) return false;
  if (place(pool, size, stream, address)) return true;
  lock.unlock();
  CudaBlock* segment = memory_.take(Wanted{(size + kSegment - 1) / kSegment * kSegment, 0, true}, error);
  address = nullptr;
  if (segment == nullptr) return true;
  lock.lock();
  reserved_bytes_ += segment->size;
  pool->segments.push_back(segment);
  const auto begin = reinterpret_cast<std::uintptr_t>(segment->address);
  pool->pages[stream].push_back(std::make_unique<Page>(begin, segment->size));
  place(pool, size, stream, address);
  return true;
}

// Gives a block the first place that is free in the pool's segments for this stream; false: there is none.
bool CudaGraphs::place(const PoolPtr& pool, Bytes size, Stream stream, void*& address) {
  for (const std::unique_ptr<Page>& page : pool->pages[stream]) {
    const auto offset = page->take(size);
    if (!offset) continue;
    ++pool->live;
    address = reinterpret_cast<void*>(page->address + static_cast<std::uintptr_t>(*offset));
    blocks_[address] = {pool, size, stream, page.get(), false};
    return true;
  }
  return false;
}

bool CudaGraphs::free(void* address) {
  std::vector<CudaBlock*> segments;
  {
    const Lock lock(mutex_);
    const auto at = blocks_.find(address);
    if (at == blocks_.end()) return false;
    const Block block = std::move(at->second);
    blocks_.erase(at);
    if (!block.is_shared) {
      block.page->give(static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(address) - block.page->address), block.size);
    }
    if (--block.pool->live == 0 && block.pool->uses <= 0) segments.swap(block.pool->segments);
  }
  give(segments);
  return true;
}

bool CudaGraphs::record_stream(void* address, Stream stream) {
  const Lock lock(mutex_);
  const auto at = blocks_.find(address);
  if (at == blocks_.end()) return false;
  at->second.is_shared |= stream != at->second.stream;
  return true;
}

void CudaGraphs::give(const std::vector<CudaBlock*>& segments) {
  for (CudaBlock* segment : segments) {
    reserved_bytes_ -= segment->size;
    memory_.give(segment);
  }
}

}  // namespace stowplan::allocator
