#include "cuda_graphs.hpp"

#include <algorithm>
#include <iterator>

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
  size = (size + kUnit - 1) / kUnit * kUnit;
  Lock lock(mutex_);
  const PoolPtr pool = pool_of(stream);
  if (pool == nullptr) return false;
  FreeRanges& ranges = pool->free[stream];
  auto best = ranges.end();
  for (auto at = ranges.begin(); at != ranges.end(); ++at) {
    if (at->second.size >= size && (best == ranges.end() || at->second.size < best->second.size)) best = at;
  }
  if (best == ranges.end()) {
    lock.unlock();
    CudaBlock* segment = memory_.take_for_all((size + kSegment - 1) / kSegment * kSegment, error);
    if (segment == nullptr) {
      address = nullptr;
      return true;
    }
    lock.lock();
    reserved_bytes_ += segment->size;
    pool->segments.push_back(segment);
    best = ranges.emplace(reinterpret_cast<std::uintptr_t>(segment->address), FreeRange{segment->size, segment}).first;
  }
  address = place(pool, ranges, best, size, stream);
  return true;
}

void* CudaGraphs::place(const PoolPtr& pool, FreeRanges& ranges, FreeRanges::iterator at, Bytes size, Stream stream) {
  const std::uintptr_t begin = at->first;
  const FreeRange range = at->second;
  ranges.erase(at);
  if (range.size > size) {
    ranges.emplace(begin + static_cast<std::uintptr_t>(size), FreeRange{range.size - size, range.segment});
  }
  ++pool->live;
  auto* address = reinterpret_cast<void*>(begin);
  blocks_[address] = {pool, size, stream, range.segment, false};
  return address;
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
      const auto begin = reinterpret_cast<std::uintptr_t>(address);
      merge(block.pool->free[block.stream], begin, {block.size, block.segment});
    }
    if (--block.pool->live == 0 && block.pool->uses <= 0) segments.swap(block.pool->segments);
  }
  give(segments);
  return true;
}

void CudaGraphs::merge(FreeRanges& ranges, std::uintptr_t begin, FreeRange range) {
  auto next = ranges.lower_bound(begin);
  if (next != ranges.end() && next->second.segment == range.segment &&
      begin + static_cast<std::uintptr_t>(range.size) == next->first) {
    range.size += next->second.size;
    next = ranges.erase(next);
  }
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->second.segment == range.segment &&
        before->first + static_cast<std::uintptr_t>(before->second.size) == begin) {
      before->second.size += range.size;
      return;
    }
  }
  ranges.emplace(begin, range);
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
