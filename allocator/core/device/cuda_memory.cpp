#include "cuda_memory.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "apart.hpp"

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
  served_.insert(stream == kPerThread ? 0 : stream);  // the legacy stream waits for all threads' own
  last_served_.store(stream, std::memory_order_release);
}

std::vector<Stream> CudaMemory::served() {
  const Lock lock(mutex_);
  return {served_.begin(), served_.end()};
}

bool CudaMemory::is_served(Stream stream) {
  const Lock lock(mutex_);
  return served_.count(stream < 0 || stream == kPerThread ? 0 : stream) != 0;
}

bool CudaMemory::is_capturing() {
  const std::vector<Stream> streams = served();
  if (streams.empty()) return false;
  const OnDevice on(api_, device_);
  return std::any_of(streams.begin(), streams.end(), [this](Stream stream) {
    if (!allocator::is_capturing(api_, stream)) return false;
    if (program_.has_dropped == nullptr || !program_.has_dropped(program_.self, stream)) return true;
    lose(stream);
    return false;
  });
}

bool CudaMemory::leave(Stream stream) {
  CudaEvent event = nullptr;
  const CudaError error = record_if_served(event, stream);
  if (error == kCudaCaptureUnsupported) return false;
  heap_.leave(stream);
  if (error != kCudaSuccess) {
    lose(stream);
    return true;
  }
  const Left left(event, Destroy{this});
  end_left(false);
  const Lock lock(mutex_);
  left_.push_back(left);
  served_.erase(stream);
  last_served_ = -1;
  return true;
}

void CudaMemory::lose(Stream stream) {
  const Lock lock(mutex_);
  if (served_.erase(stream) == 0) return;
  last_served_ = -1;
  lost_.push_back(stream);
  any_waits_ = true;
  ++losses_;
}

void CudaMemory::wait(Stream stream, CudaEvent event) const {
  const Apart apart;
  const OnDevice on(api_, device_);
  const CudaError error = checked(api_.stream_wait_event(stream_handle(stream), event, 0));
  if (error != kCudaSuccess) throw Refusal(error);
}

bool CudaMemory::is_over(CudaEvent event) const {
  const Apart apart;
  const WhileCapturing allowed(api_);
  const CudaError error = checked(api_.event_query(event));
  if (error != kCudaSuccess && error != kCudaNotReady) throw Refusal(error);
  return error == kCudaSuccess;
}

void CudaMemory::destroy(CudaEvent event) const {
  const Apart apart;
  const WhileCapturing allowed(api_);
  checked(api_.event_destroy(event));
}

CudaError CudaMemory::synchronize() {
  if (is_capturing()) return kCudaCaptureUnsupported;
  const std::uint64_t losses = losses_;
  const std::vector<Stream> streams = served();
  bool any_ended = losses != awaited_;
  if (streams.empty() && !any_ended) return end_left(true);  // nothing makes a context
  const Apart apart;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  CudaError error = kCudaSuccess;
  std::vector<CudaEvent> events;
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
  if (error == kCudaSuccess) error = end_left(true);
  if (error == kCudaSuccess && any_ended) error = checked(api_.device_synchronize());
  if (error == kCudaSuccess) awaited_ = losses;
  return error;
}

// Drops the events of streams that have left which are over; waits for them all, or asks.
CudaError CudaMemory::end_left(bool waits) {
  std::vector<Left> left, over;
  {
    const Lock lock(mutex_);
    left = left_;
  }
  if (left.empty()) return kCudaSuccess;
  const Apart apart;
  const WhileCapturing allowed(api_);
  CudaError error = kCudaSuccess;
  for (const Left& event : left) {
    const CudaError answer = checked(waits ? api_.event_synchronize(event.get()) : api_.event_query(event.get()));
    if (answer == kCudaSuccess) over.push_back(event);
    if (answer != kCudaSuccess) error = answer;
  }
  const Lock lock(mutex_);
  const auto is_over = [&](const Left& event) { return std::find(over.begin(), over.end(), event) != over.end(); };
  left_.erase(std::remove_if(left_.begin(), left_.end(), is_over), left_.end());
  return error;
}

CudaError CudaMemory::ask(CudaBlock& block, const Wanted& wanted) {
  block.of_graph = !wanted.for_all && allocator::is_capturing(api_, block.stream);
  CudaError error = kCudaSuccess;
  if (program_.serves_all || (wanted.is_sample && program_.serves_samples)) {
    std::uintptr_t address = 0;
    error = program_.take(program_.self, wanted.client, wanted.size, &address, &block.foreign);
    block.address = reinterpret_cast<void*>(address);
    return error;
  }
  // A thread's own default stream is another one to the thread that frees the block.
  const Stream own = block.stream == kPerThread ? stream_of_thread() : block.stream;
  const Stream stream = wanted.for_all || block.of_graph ? DeviceHeap::kShared : own;
  error = heap_.take(block.size, stream, block.place);
  block.address = reinterpret_cast<void*>(block.place.address);
  return error;
}

CudaBlock* CudaMemory::take(const Wanted& wanted, CudaError& error) {
  give_what_waits();
  limit();
  auto block = std::make_unique<CudaBlock>();
  block->size = wanted.size;
  block->stream = wanted.stream;
  block->guarded = wanted.for_all;
  std::map<std::uintptr_t, CudaBlock*> noted{{0, block.get()}};  // before CUDA gives anything
  error = ask(*block, wanted);
  const bool may_collect = program_.collect != nullptr && !program_.serves_all;
  if (error == kCudaOutOfMemory && may_collect && program_.collect(program_.self)) {
    error = ask(*block, wanted);
  }
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
  if (block->foreign != 0) {
    program_.give(program_.self, block->foreign);
  } else {
    heap_.give(block->place);
  }
  delete block;
}

void CudaMemory::give_what_waits() {
  if (!any_waits_) return;
  std::vector<CudaBlock*> waiting;
  std::vector<Stream> lost;
  {
    const Lock lock(mutex_);
    waiting.swap(waiting_);
    lost.swap(lost_);
    any_waits_ = false;
  }
  for (const Stream stream : lost) heap_.leave(stream);
  for (CudaBlock* block : waiting) give(block);
}

void CudaMemory::trim() {
  const Apart apart;
  give_what_waits();
  if (program_.trim != nullptr) program_.trim(program_.self);
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
