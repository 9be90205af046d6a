#include "cuda_memory.hpp"

#include <memory>

#include "device_pool.hpp"

namespace stowplan::allocator {

CudaMemory::~CudaMemory() { give_what_waits(); }

CudaMemoryPool CudaMemory::memory_pool() {
  const Lock lock(looking_);
  if (looked_) return memory_pool_;
  looked_ = true;
  int supported = 0;
  if (checked(api_.device_attribute(&supported, api_.memory_pools_supported, device_)) != kCudaSuccess) return nullptr;
  if (supported == 0 || checked(api_.device_memory_pool(&memory_pool_, device_)) != kCudaSuccess) return memory_pool_;
  std::uint64_t all = UINT64_MAX;  // it keeps what is freed, until trim()
  checked(api_.set_memory_pool(memory_pool_, kCudaReleaseThreshold, &all));
  return memory_pool_;
}

bool CudaMemory::is_capturing(Stream stream) const {
  int status = kCudaCaptureNone;
  return checked(api_.stream_is_capturing(stream_handle(stream), &status)) != kCudaSuccess ||
         status != kCudaCaptureNone;
}

namespace {
thread_local Stream last_asked_on = 0;
}

void CudaMemory::asks(Stream stream) { last_asked_on = stream; }

CudaError CudaMemory::synchronize() {
  const OnDevice on(api_, device_);
  // To wait for the device would end the capture. The legacy stream counts as captured while any is that waits for it.
  if (captures_ != 0 || is_capturing(0) || is_capturing(last_asked_on)) return kCudaCaptureUnsupported;
  return checked(api_.device_synchronize());
}

CudaError CudaMemory::ask(CudaBlock& block, bool may_be_ordered) {
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  // A thread's own default stream is another one to the thread that frees the block.
  block.ordered = may_be_ordered && block.stream != DevicePool::kPerThread && memory_pool() != nullptr &&
                  !is_capturing(block.stream);
  const auto size = static_cast<std::size_t>(block.size);
  return checked(block.ordered ? api_.malloc_async(&block.address, size, stream_handle(block.stream))
                               : api_.malloc(&block.address, size));
}

CudaBlock* CudaMemory::take(Bytes size, Stream stream, bool may_be_ordered, CudaError& error) {
  give_what_waits();
  auto block = std::make_unique<CudaBlock>();
  block->size = size;
  block->stream = stream;
  const Bytes taken = taken_ += size;
  error = kCudaOutOfMemory;
  if (const Bytes limit = limit_; limit == 0 || taken <= limit) {
    error = ask(*block, may_be_ordered);
    if (error == kCudaOutOfMemory && synchronize() == kCudaSuccess) {
      trim();
      error = ask(*block, may_be_ordered);
    }
  }
  if (error != kCudaSuccess) {
    taken_ -= size;
    return nullptr;
  }
  const Lock lock(mutex_);
  blocks_[reinterpret_cast<std::uintptr_t>(block->address)] = block.get();
  return block.release();
}

// Whether no stream uses a block any longer that free_async() would not wait for. What is not known here to be a
// capture, CUDA knows: it refuses to wait. Any other error is the device's end: nothing runs there.
bool CudaMemory::may_go(const CudaBlock& block) {
  if (is_capturing(block.stream)) return false;
  return (block.ordered && !block.guarded) || synchronize() != kCudaCaptureUnsupported;
}

void CudaMemory::give(CudaBlock* block) {
  const OnDevice on(api_, device_);
  if (may_go(*block)) return go(block);
  const Lock lock(mutex_);
  waiting_.push_back(block);
  any_waits_ = true;
}

void CudaMemory::go(CudaBlock* block) {
  const std::unique_ptr<CudaBlock> gone(block);
  {
    const Lock lock(mutex_);
    blocks_.erase(reinterpret_cast<std::uintptr_t>(block->address));
  }
  taken_ -= block->size;
  if (block->ordered) {
    if (checked(api_.free_async(block->address, stream_handle(block->stream))) == kCudaSuccess) return;
    synchronize();  // the stream is there no longer
  }
  checked(api_.free(block->address));
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
  give_what_waits();
  if (captures_ != 0) return;
  if (CudaMemoryPool pool = memory_pool()) checked(api_.trim_memory_pool(pool, 0));
}

bool CudaMemory::info(std::size_t& free, std::size_t& total) const {
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
  size = static_cast<std::size_t>(block.size);
  return block.address;
}

}  // namespace stowplan::allocator
