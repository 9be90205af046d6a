#include "cuda_memory.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "apart.hpp"
#include "device_pool.hpp"

// CUDA calls that a capture forbids are made with `WhileCapturing`: they have nothing to do with it.

namespace stowplan::allocator {

CudaMemory::~CudaMemory() {
  std::vector<CudaBlock*> of_graphs;
  for (const auto& [address, block] : blocks_) {
    if (block->of_graph) of_graphs.push_back(block);
  }
  for (CudaBlock* block : of_graphs) {
    block->of_graph = false;
    give(block);
  }
  give_what_waits();
}

void CudaMemory::note_stream(Stream stream) {
  const Lock lock(mutex_);
  served_.insert(stream == DevicePool::kPerThread ? 0 : stream);  // the legacy stream waits for all threads' own
  last_served_.store(stream, std::memory_order_release);
}

std::vector<Stream> CudaMemory::served() {
  const Lock lock(mutex_);
  return {served_.begin(), served_.end()};
}

bool CudaMemory::is_capturing() {
  const std::vector<Stream> streams = served();
  if (streams.empty()) return false;
  const OnDevice on(api_, device_);
  return std::any_of(streams.begin(), streams.end(),
                     [this](Stream stream) { return allocator::is_capturing(api_, stream); });
}

void CudaMemory::destroy(CudaEvent event) const {
  const Apart apart;
  const WhileCapturing allowed(api_);
  checked(api_.event_destroy(event));
}

CudaError CudaMemory::synchronize() {
  const std::vector<Stream> streams = served();
  if (streams.empty()) return kCudaSuccess;
  const Apart apart;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  std::vector<CudaEvent> events;
  CudaError error = kCudaSuccess;
  bool any_ended = false;
  for (const Stream stream : streams) {
    CudaEvent event = nullptr;
    const CudaError recorded = record(event, stream);
    if (recorded == kCudaSuccess) {
      events.push_back(event);
    } else if (recorded == kCudaCaptureUnsupported) {
      error = recorded;
    } else {
      any_ended = true;
    }
  }
  for (CudaEvent event : events) {
    if (error == kCudaSuccess) error = checked(api_.event_synchronize(event));
    destroy(event);
  }
  if (error == kCudaSuccess && any_ended) error = checked(api_.device_synchronize());
  return error;
}

CudaError CudaMemory::ask(CudaBlock& block, bool for_all) {
  block.of_graph = !for_all && allocator::is_capturing(api_, block.stream);
  // A thread's own default stream is another one to the thread that frees the block.
  const Stream own = block.stream == DevicePool::kPerThread ? stream_of_thread() : block.stream;
  const Stream stream = for_all || block.of_graph ? DeviceHeap::kShared : own;
  const CudaError error = heap_.take(block.size, stream, block.place);
  block.address = reinterpret_cast<void*>(block.place.address);
  return error;
}

CudaBlock* CudaMemory::take(Bytes size, Stream stream, bool for_all, CudaError& error) {
  give_what_waits();
  limit();
  auto block = std::make_unique<CudaBlock>();
  block->size = size;
  block->stream = stream;
  block->guarded = for_all;
  std::map<std::uintptr_t, CudaBlock*> noted{{0, block.get()}};  // before CUDA gives anything
  error = ask(*block, for_all);
  if (error != kCudaSuccess) return nullptr;
  auto node = noted.extract(noted.begin());
  node.key() = reinterpret_cast<std::uintptr_t>(block->address);
  const Lock lock(mutex_);
  blocks_.insert(std::move(node));
  return block.release();
}

// Whether no other stream than a block's own uses it any longer, and its own takes memory back.
bool CudaMemory::may_go(const CudaBlock& block) {
  if (allocator::is_capturing(api_, block.stream)) return false;
  return !block.guarded || synchronize() == kCudaSuccess;
}

void CudaMemory::give(CudaBlock* block) {
  if (block->of_graph) return;
  const OnDevice on(api_, device_);
  if (may_go(*block)) return go(block);
  const Lock lock(mutex_);
  waiting_.push_back(block);
  any_waits_ = true;
}

void CudaMemory::go(CudaBlock* block) {
  const Apart apart;
  std::map<std::uintptr_t, CudaBlock*>::node_type node;
  {
    const Lock lock(mutex_);
    node = blocks_.extract(reinterpret_cast<std::uintptr_t>(block->address));
  }
  heap_.give(block->place);
  delete block;
}

void CudaMemory::give_what_waits() {
  if (!any_waits_) return;
  std::vector<CudaBlock*> waiting;
  {
    const Lock lock(mutex_);
    waiting.swap(waiting_);
    any_waits_ = false;
  }
  for (CudaBlock* block : waiting) give(block);
}

void CudaMemory::trim() {
  const Apart apart;
  give_what_waits();
  heap_.trim();
}

Bytes CudaMemory::limit() {
  std::size_t free = 0, total = 0;
  if (is_fraction_ && info(free, total)) {
    is_fraction_ = false;
    heap_.set_limit(std::max(Bytes{1}, static_cast<Bytes>(fraction_ * static_cast<double>(total))));
  }
  return heap_.limit();
}

bool CudaMemory::info(std::size_t& free, std::size_t& total) const {
  const Apart apart;
  const OnDevice on(api_, device_);
  return checked(api_.memory_info(&free, &total)) == kCudaSuccess;
}

void* CudaMemory::base_of(void* address, std::size_t& size) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Lock lock(mutex_);
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  const CudaBlock& block = *std::prev(next)->second;
  if (at - reinterpret_cast<std::uintptr_t>(block.address) >= static_cast<std::uintptr_t>(block.size)) return nullptr;
  if (const Page* page = block.place.page) {
    size = static_cast<std::size_t>(heap_.page());
    return reinterpret_cast<void*>(page->address);
  }
  size = static_cast<std::size_t>(block.size);
  return block.address;
}

}  // namespace stowplan::allocator
