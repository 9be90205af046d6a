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
  if (memory_pool_ == nullptr) return;
  const OnDevice on(api_, device_);
  checked(api_.end_memory_pool(memory_pool_));
}

CudaMemoryPool CudaMemory::memory_pool() {
  const Lock lock(looking_);
  if (looked_) return memory_pool_;
  looked_ = true;
  int supported = 0;
  if (!api_.has_memory_pools) return nullptr;
  if (checked(api_.device_attribute(&supported, api_.memory_pools_supported, device_)) != kCudaSuccess) return nullptr;
  if (supported == 0) return nullptr;
  MemoryPoolProperties properties;
  properties.location.device = device_;
  CudaMemoryPool pool = nullptr;
  if (checked(api_.make_memory_pool(&pool, &properties)) != kCudaSuccess) return nullptr;
  std::uint64_t all = UINT64_MAX;  // it keeps what is freed, until trim()
  CudaError error = checked(api_.set_memory_pool(pool, kCudaReleaseThreshold, &all));
  for (const int peer : api_.peers_of(device_)) {
    MemoryAccess access;
    access.location.device = peer;
    if (error == kCudaSuccess) error = checked(api_.open_memory_pool(pool, &access, 1));
  }
  if (error == kCudaSuccess) return memory_pool_ = pool;
  checked(api_.end_memory_pool(pool));
  return nullptr;
}

bool CudaMemory::is_capturing(Stream stream) const {
  int status = kCudaCaptureNone;
  return checked(api_.stream_is_capturing(stream_handle(stream), &status)) != kCudaSuccess ||
         status != kCudaCaptureNone;
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
  return std::any_of(streams.begin(), streams.end(), [this](Stream stream) { return is_capturing(stream); });
}

CudaError CudaMemory::record(CudaEvent& event, Stream stream) const {
  const Apart apart;
  const OnDevice on(api_, device_);
  if (is_capturing(stream)) return kCudaCaptureUnsupported;
  CudaError error = checked(api_.event_create(&event, kCudaEventDisableTiming));
  if (error != kCudaSuccess) return error;
  error = checked(api_.event_record(event, stream_handle(stream)));
  // Another thread may have begun a capture meanwhile, and then the event is the capture's.
  if (error == kCudaSuccess && is_capturing(stream)) error = kCudaCaptureUnsupported;
  if (error != kCudaSuccess) destroy(event);
  return error;
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
  const Apart apart;
  const OnDevice on(api_, device_);
  block.of_graph = !for_all && is_capturing(block.stream);
  // A thread's own default stream is another one to the thread that frees the block.
  const bool is_own = block.stream == DevicePool::kPerThread;
  if (!for_all && !block.of_graph && !is_own && segments_.is_worn() && memory_pool() != nullptr)
    return ask_ordered(block);
  const Stream own = is_own ? stream_of_thread() : block.stream;
  const CudaError error = segments_.take(block.size, for_all || block.of_graph ? kShared : own, block.place);
  block.address = reinterpret_cast<void*>(block.place.address);
  return error;
}

CudaError CudaMemory::ask_ordered(CudaBlock& block) {
  segments_.trim();  // they serve no more
  if (!segments_.keep_limit(block.size)) return kCudaOutOfMemory;
  const WhileCapturing allowed(api_);
  const auto size = static_cast<std::size_t>(block.size);
  const CudaError error = checked(api_.malloc_async(&block.address, size, memory_pool(), stream_handle(block.stream)));
  block.ordered = error == kCudaSuccess;
  if (!block.ordered) return error;
  ordered_ += block.size;
  note_ordered();
  return error;
}

// Has the account count what the stream-ordered allocator holds.
void CudaMemory::note_ordered() {
  if (memory_pool_ == nullptr) return;
  const Bytes used = ordered_;
  std::uint64_t held = 0;
  const OnDevice on(api_, device_);
  const CudaError error = checked(api_.ask_memory_pool(memory_pool_, kCudaReservedCurrent, &held));
  segments_.note_beside(error == kCudaSuccess ? static_cast<Bytes>(held) : used, used);
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
  if (error == kCudaOutOfMemory && synchronize() == kCudaSuccess) {
    trim();
    error = ask(*block, for_all);
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
  if (is_capturing(block.stream)) return false;
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
  if (block->place.address != 0) {
    segments_.give(block->place);
    delete block;
    return;
  }
  const WhileCapturing allowed(api_);
  if (!block->ordered) {
    checked(api_.free(block->address));
  } else if (checked(api_.free_async(block->address, stream_handle(block->stream))) != kCudaSuccess) {
    {
      const Lock lock(mutex_);
      blocks_.insert(std::move(node));
    }
    block->ordered = false;  // its stream is there no longer, and cudaFree does not wait for such memory
    block->guarded = true;
    block->stream = 0;
    return give(block);
  }
  ordered_ -= block->size;
  note_ordered();
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
  segments_.trim();
  if (memory_pool_ == nullptr || is_capturing()) return;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  checked(api_.trim_memory_pool(memory_pool_, 0));
  note_ordered();
}

void CudaMemory::note_arenas(Bytes size) {
  if (memory_pool_ != nullptr) trim();
  segments_.note_arenas(size);
}

Bytes CudaMemory::limit() {
  std::size_t free = 0, total = 0;
  if (is_fraction_ && info(free, total)) {
    is_fraction_ = false;
    segments_.set_limit(std::max(Bytes{1}, static_cast<Bytes>(fraction_ * static_cast<double>(total))));
  }
  return segments_.limit();
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
    size = static_cast<std::size_t>(segments_.page());
    return reinterpret_cast<void*>(page->address);
  }
  size = static_cast<std::size_t>(block.size);
  return block.address;
}

}  // namespace stowplan::allocator
