#include "cuda_pool.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "apart.hpp"
#include "cuda_errors.hpp"

namespace stowplan::allocator {

namespace {

using Lock = std::lock_guard<SpinLock>;

// Whether this thread has asked for memory. One that has not may be the driver's own, which runs a host function: no
// call of CUDA may be made there.
thread_local bool asks = false;

constexpr Stream kGone = 3;  // no stream has this handle: none takes an event for it

// What CUDA refuses is nothing done: false, or 0.
template <class F>
auto attempt(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Refusal&) {
    return {};
  }
}

// Where there is no host memory to note something, it is done once more.
template <class F>
auto twice(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return f();
  }
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace

// ----------------------------------------------------------------------------------------------- requests and frees

// The device is asked nothing before it is used: that would make a context there.
void CudaPool::look_for_virtual_memory() {
  const Apart apart;  // another thread may wait here
  std::call_once(looked_, [this] {
    memory_.limit();
    if (memory_.program().serves_all) return;
    memory_.heap().use(VirtualMemory::of(memory_.api(), memory_.device()));
    pool_.use(memory_.heap());
  });
}

void CudaPool::meet(Stream stream) {
  look_for_virtual_memory();
  memory_.note_stream(stream);
}

void* CudaPool::malloc(Bytes size, Stream stream) {
  if (size == 0) return nullptr;  // as CUDA answers
  CudaError error = kCudaOutOfMemory;
  void* address = nullptr;
  if (graphs_.any_begun() && request_of_graph(size, stream, address, error)) {
    if (address == nullptr) fail(error, size, stream);
    return address;
  }
  Served served;
  if (!serve(size, stream, nullptr, served, error)) fail(error, size, stream);
  try {
    twice([&] { return note(served); });
  } catch (const std::bad_alloc&) {
    end(served, nullptr);
    throw;
  }
  return reinterpret_cast<void*>(served.address);
}

bool CudaPool::serve(Bytes size, Stream stream, void* client, Served& served, CudaError& error) {
  return twice([&] { return request(size, stream, client, served, error); });
}

bool CudaPool::request(Bytes size, Stream stream, void* client, Served& served, CudaError& error) {
  error = kCudaOutOfMemory;
  if (size < 0 || size > DeviceHeap::kEndless) return false;
  asks = true;
  if (memory_.is_new(stream)) meet(stream);
  served = {};
  try {
    const Grant grant = pool_.request(size, stream);
    served.id = grant.id;
    if (grant.id == kNoBlock) throw std::bad_alloc();  // other memory has to be noted, too
    served.address = grant.address;
    if (served.address != 0) return true;
    served.address = pool_.ask_device(grant, {size, stream, false, false, client}, served.memory, error);
    if (served.address != 0) return true;
  } catch (const Refusal& refusal) {
    error = refusal.error;
  } catch (const std::bad_alloc&) {
    undo(served);
    throw;
  }
  undo(served);
  return false;
}

void CudaPool::undo(const Served& served) {
  if (served.id != kNoBlock) pool_.release(served.id);
  if (served.memory != nullptr) memory_.give(served.memory);
}

// Whether a stream is one of a capture's, whose memory is the graph's.
bool CudaPool::request_of_graph(Bytes size, Stream stream, void*& address, CudaError& error) {
  if (memory_.is_new(stream)) meet(stream);
  if (!graphs_.request(size, stream, address, error)) return false;
  if (address == nullptr && give_back() > 0) graphs_.request(size, stream, address, error);
  return true;
}

void CudaPool::note(const Served& served) {
  const Lock lock(lock_);
  blocks_.reserve(1);
  if (served.memory != nullptr) extra(served.id).memory = served.memory;
  blocks_.insert(served.address, served.id);
}

// Under the lock.
CudaPool::Extra& CudaPool::extra(BlockId id) {
  if (extras_.size() <= id) extras_.resize(2 * static_cast<std::size_t>(id) + 64);
  return extras_[id];
}

void CudaPool::free(void* address) {
  if (address == nullptr) return;
  Served served;
  Extra extra;
  {
    const Lock lock(lock_);
    served.id = blocks_.take(reinterpret_cast<std::uintptr_t>(address));
    if (served.id < extras_.size()) extra = std::exchange(extras_[served.id], {});
  }
  if (served.id == kNoBlock) {
    graphs_.free(address);
    return;
  }
  served.memory = extra.memory;
  end(served, &extra.uses);
}

void CudaPool::end(const Served& served, const Uses* uses) {
  CudaBlock* const memory = served.memory;
  if (uses != nullptr && !uses->streams.empty()) {
    if (memory != nullptr) memory->guarded = true;
    const bool any_lost = uses->losses != memory_.losses();  // perhaps one of these
    return pool_.hold(served.id, any_lost ? std::vector<Stream>{kGone} : uses->streams, memory, asks);
  }
  pool_.release(served.id);
  if (memory != nullptr) asks ? memory_.give(memory) : memory_.put_off(memory);
}

void CudaPool::record_stream(void* address, Stream stream) {
  const BlockId id = locked(lock_, [&] { return blocks_.find(reinterpret_cast<std::uintptr_t>(address)); });
  if (id == kNoBlock) {
    graphs_.record_stream(address, stream);
  } else if (is_other(id, stream)) {
    const Lock lock(lock_);
    add(extra(id).uses, stream);
  }
}

void CudaPool::use(const Served& served, Stream stream, Uses& uses) {
  if (is_other(served.id, stream)) add(uses, stream);
}

// Whether a stream is another one than a block's own; then it is one of the pool's.
bool CudaPool::is_other(BlockId id, Stream stream) {
  if (stream == kPerThread) {
    throw CudaFailure(
        "stowplan: a block is used on a thread's own default stream; expected one that all threads share");
  }
  if (stream == pool_.stream_of(id)) return false;
  if (memory_.is_new(stream)) meet(stream);
  return true;
}

void CudaPool::add(Uses& uses, Stream stream) const {
  if (uses.streams.empty()) uses.losses = memory_.losses();
  const bool is_known = std::find(uses.streams.begin(), uses.streams.end(), stream) != uses.streams.end();
  if (!is_known) uses.streams.push_back(stream);
}

// ----------------------------------------------------------------------------------------------------- giving back

bool CudaPool::reserve(LaneNumber lane, Bytes size) {
  const Apart apart;
  look_for_virtual_memory();
  return attempt([&] { return pool_.reserve(lane, size); });
}

std::size_t CudaPool::give_back() {
  const Apart apart;
  const std::size_t given = attempt([&] { return pool_.give_back(); });
  memory_.synchronize();
  memory_.trim();
  return given;
}

void CudaPool::settle() {
  attempt([&] { return pool_.settle(); });
  memory_.settle();
}

// -------------------------------------------------------------------------------------------------------- failures

// What fills the memory, and what helps, Python tells: allocator/report.py.
void CudaPool::fail(CudaError error, Bytes size, Stream stream) {
  const std::string what = with_commas(size) + " bytes on device " + std::to_string(memory_.device());
  if (error != kCudaOutOfMemory) {
    throw CudaFailure("CUDA error " + std::to_string(error) + " (" + memory_.api().text_of(error) +
                      "): stowplan asked for " + what);
  }
  const Counters now = lanes()->counters();
  std::string text = "CUDA out of memory. Tried to allocate " + what + ", stream " + std::to_string(stream) +
                     ". stowplan has " + with_commas(now.reserved_bytes()) + " bytes reserved, " +
                     with_commas(now.live_bytes) + " of them live, and " + with_commas(graphs_.reserved_bytes()) +
                     " for graphs";
  if (memory_.limit() != 0) text += ", of a limit of " + with_commas(memory_.limit());
  std::size_t free = 0, total = 0;
  if (memory_.info(free, total)) {
    text += "; the device has " + with_commas(static_cast<Bytes>(free)) + " of " +
            with_commas(static_cast<Bytes>(total)) + " bytes free";
  }
  throw_out_of_memory(text + ". The pool's report() says what fills it, and what to do.");
}

// ----------------------------------------------------------------------------------------------------- all devices

CudaPool& CudaPools::on(int device) {
  if (device < 0 || device >= kMostDevices) {
    throw CudaFailure("stowplan: device " + std::to_string(device) + "; expected 0 to " +
                      std::to_string(kMostDevices - 1));
  }
  std::atomic<CudaPool*>& place = devices_[static_cast<std::size_t>(device)];
  if (CudaPool* pool = place.load(std::memory_order_acquire)) return *pool;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (place.load() == nullptr) {
    pools_.push_back(std::make_unique<CudaPool>(api_, device, scope_, limit_));
    place.store(pools_.back().get(), std::memory_order_release);
  }
  return *place.load();
}

void* CudaPools::malloc(Bytes size, int device, Stream stream) {
  if (abandoned_.load(std::memory_order_relaxed)) {
    throw CudaFailure(
        "stowplan: this process was forked from one that had used the pool, and CUDA does not survive it");
  }
  if (!has_served_.load(std::memory_order_relaxed)) has_served_ = true;
  return on(device).malloc(size, stream);
}

void CudaPools::free(void* address, int device) {
  if (!abandoned_.load(std::memory_order_relaxed)) on(device).free(address);
}

void CudaPools::record_stream(void* address, Stream stream) {
  if (abandoned_) return;
  each([&](CudaPool& pool) { pool.record_stream(address, stream); });
}

void* CudaPools::base_of(void* address, std::size_t& size) {
  void* base = nullptr;
  each([&](CudaPool& pool) {
    if (base == nullptr) base = pool.memory().base_of(address, size);
  });
  return base;
}

bool CudaPools::is_idle() {
  bool is_idle = !abandoned_;
  each([&](CudaPool& pool) { is_idle = is_idle && pool.is_idle(); });
  return is_idle;
}

void CudaPools::give_back() {
  if (!abandoned_) each([](CudaPool& pool) { pool.give_back(); });
}

}  // namespace stowplan::allocator
