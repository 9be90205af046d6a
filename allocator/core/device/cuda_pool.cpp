#include "cuda_pool.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "apart.hpp"
#include "cuda_errors.hpp"

namespace stowplan::allocator {

namespace {

using Lock = std::lock_guard<profiler::SpinLock>;

thread_local CudaError pending = kCudaSuccess;  // the error of an OwnersError

// A token is a stream's handle, or the address of an event or of memory, or an error's number, with its kind above.
// Streams and errors are not kept: to drop them is nothing.
enum class Kind : Token { stream, event, memory, error };
constexpr int kKindBit = 60;

Token token_of(Kind kind, Token value) { return static_cast<Token>(kind) << kKindBit | value; }
template <class T>
Token token_of(Kind kind, T* thing) {
  return token_of(kind, static_cast<Token>(reinterpret_cast<std::uintptr_t>(thing)));
}
Kind kind_of(Token token) { return static_cast<Kind>(token >> kKindBit); }
Token value_of(Token token) { return token & ((Token{1} << kKindBit) - 1); }
CudaEvent event_of(Token token) { return reinterpret_cast<CudaEvent>(value_of(token)); }
CudaBlock* memory_of(Token token) { return reinterpret_cast<CudaBlock*>(value_of(token)); }

// What a function of the owner's returns: -1 and the error pending, or 0.
int answer_of(CudaError error) {
  if (error == kCudaSuccess) return 0;
  pending = error;
  return -1;
}

// What CUDA refuses is nothing done: false, or 0.
template <class F>
auto attempt(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const OwnersError&) {
    pending = kCudaSuccess;
    return {};
  }
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------ the owner

CudaPool::CudaPool(const CudaApi& api, int device, Scope scope, Bytes limit)
    : memory_(api, device, limit), pool_(scope) {
  pool_.connect(as_owner());
}

CudaPool::~CudaPool() { pool_.close(); }

Device CudaPool::as_owner() {
  Device device;
  device.owner = this;
  device.ask = [](void* owner, void* client, Bytes size, bool, Answer* answer) {
    return self(owner).ask(static_cast<Client*>(client), size, *answer);
  };
  device.trim = [](void* owner) {
    self(owner).memory_.synchronize();  // the stream-ordered allocator may give back then what it still has to free
    self(owner).memory_.trim();
    return 0;
  };
  device.room = [](void* owner, bool within_limit) {
    CudaPool& pool = self(owner);
    pool.memory_.limit();
    return pool.memory_.segments().room(within_limit, pool.lanes()->counters().peak_live_bytes);
  };
  device.note_arenas = [](void* owner, Bytes size) {
    self(owner).memory_.note_arenas(size);
    return 0;
  };
  device.capturing = [](void* owner) { return self(owner).memory_.is_capturing() ? 1 : 0; };
  device.synchronize = [](void* owner) { return answer_of(self(owner).memory_.synchronize()); };
  device.record = [](void* owner, Token stream, Token* event) {
    return self(owner).record(static_cast<Stream>(value_of(stream)), *event);
  };
  device.done = [](void* owner, Token event) { return self(owner).done(event_of(event)); };
  device.wait = [](void* owner, Stream stream, Token event) {
    const Apart apart;
    const CudaApi& api = self(owner).memory_.api();
    const OnDevice on(api, self(owner).memory_.device());
    return answer_of(api.checked(api.stream_wait_event(stream_handle(stream), event_of(event), 0)));
  };
  device.unguard = [](void*, Token memory) { memory_of(memory)->guarded = false; };
  device.drop = [](void* owner, Token token) { self(owner).drop(token); };
  device.forget_error = [](void*) { pending = kCudaSuccess; };
  return device;
}

int CudaPool::ask(Client* client, Bytes size, Answer& answer) {
  CudaError error = kCudaSuccess;
  CudaBlock* block = client != nullptr ? memory_.take(size, client->stream, error) : memory_.take_for_all(size, error);
  if (block == nullptr) {
    answer.error = token_of(Kind::error, static_cast<Token>(error));
    answer.out_of_memory = error == kCudaOutOfMemory;
    return 0;
  }
  answer.address = reinterpret_cast<std::uintptr_t>(block->address);
  (client != nullptr ? client->memory : answer.memory) = token_of(Kind::memory, block);
  return 0;
}

int CudaPool::record(Stream stream, Token& event) {
  CudaEvent recorded = nullptr;
  const CudaError error = memory_.record(recorded, stream);
  if (error == kCudaSuccess) event = token_of(Kind::event, recorded);
  return error == kCudaCaptureUnsupported ? 0 : answer_of(error);
}

int CudaPool::done(CudaEvent event) {
  const Apart apart;
  const CudaApi& api = memory_.api();
  const WhileCapturing allowed(api);
  const CudaError error = api.checked(api.event_query(event));
  if (error == kCudaNotReady) return 0;
  return error == kCudaSuccess ? 1 : answer_of(error);
}

void CudaPool::drop(Token token) {
  switch (kind_of(token)) {
    case Kind::event: memory_.destroy(event_of(token)); break;
    case Kind::memory: memory_.give(memory_of(token)); break;
    case Kind::stream:
    case Kind::error: break;
  }
}

// ----------------------------------------------------------------------------------------------- requests and frees

// The device is asked nothing before it is used: that would make a context there.
void CudaPool::look_for_virtual_memory() {
  const Apart apart;  // another thread may wait here
  std::call_once(looked_, [this] {
    const VirtualMemory memory = VirtualMemory::of(memory_.api(), memory_.device());
    if (memory.page() == 0) return;
    pool_.use_virtual_memory(memory);
    memory_.segments().set_page(memory.page());
  });
}

void CudaPool::meet(Stream stream) {
  look_for_virtual_memory();
  memory_.note_stream(stream);
}

void* CudaPool::malloc(Bytes size, Stream stream) {
  if (size == 0) return nullptr;  // as CUDA answers
  if (size < 0 || size > Segments::kEndless) fail(kCudaOutOfMemory, size, stream);
  if (memory_.is_new(stream)) meet(stream);
  if (graphs_.any_begun()) {
    if (void* address = request_of_graph(size, stream)) return address;
  }
  Grant grant;
  try {
    grant = pool_.request(size, stream);
  } catch (const OwnersError&) {
    fail(std::exchange(pending, kCudaSuccess), size, stream);
  }
  if (grant.id == profiler::kNoBlock) throw std::bad_alloc();  // upstream's blocks have to be noted, too
  if (grant.address == 0) return ask_upstream(grant, size, stream);
  note(grant.address, grant.id, 0);
  return reinterpret_cast<void*>(grant.address);
}

void* CudaPool::ask_upstream(const Grant& grant, Bytes size, Stream stream) {
  Client client{stream};
  CudaError error = kCudaSuccess;
  try {
    const Answer answer = pool_.ask_upstream(grant.id, size, static_cast<Reason>(grant.reason), &client);
    if (answer.error == 0) {
      note(answer.address, grant.id, client.memory);
      return reinterpret_cast<void*>(answer.address);
    }
    error = static_cast<CudaError>(value_of(answer.error));
  } catch (const OwnersError&) {
    error = std::exchange(pending, kCudaSuccess);
  }
  pool_.release(grant.id);
  fail(error, size, stream);
}

void* CudaPool::request_of_graph(Bytes size, Stream stream) {
  void* address = nullptr;
  CudaError error = kCudaSuccess;
  if (!graphs_.request(size, stream, address, error) || address != nullptr) return address;
  if (give_back() > 0 && graphs_.request(size, stream, address, error) && address != nullptr) return address;
  fail(error, size, stream);
}

void CudaPool::note(std::uintptr_t address, BlockId id, Token memory) {
  const Lock lock(lock_);
  blocks_.insert(address, id);
  if (memory == 0) return;
  if (extras_.size() <= id) extras_.resize(2 * static_cast<std::size_t>(id) + 64);
  extras_[id].memory = memory;
}

void CudaPool::free(void* address) {
  if (address == nullptr) return;
  BlockId id;
  Extra extra;
  {
    const Lock lock(lock_);
    id = blocks_.take(reinterpret_cast<std::uintptr_t>(address));
    if (id < extras_.size()) extra = std::exchange(extras_[id], {});
  }
  if (id == profiler::kNoBlock) {
    graphs_.free(address);
    return;
  }
  if (!extra.used_on.empty()) {
    if (extra.memory != 0) memory_of(extra.memory)->guarded = true;
    std::vector<Token> streams;
    for (const Stream stream : extra.used_on) streams.push_back(token_of(Kind::stream, static_cast<Token>(stream)));
    return pool_.hold(id, streams, extra.memory);
  }
  pool_.release(id);
  if (extra.memory != 0) drop(extra.memory);
}

void CudaPool::record_stream(void* address, Stream stream) {
  if (stream == DevicePool::kPerThread) {
    throw CudaFailure(
        "stowplan: a block is used on a thread's own default stream; expected one that all threads share");
  }
  BlockId id;
  {
    const Lock lock(lock_);
    id = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
  }
  if (id == profiler::kNoBlock) {
    graphs_.record_stream(address, stream);
    return;
  }
  if (stream == pool_.stream_of(id)) return;
  if (memory_.is_new(stream)) meet(stream);
  const Lock lock(lock_);
  if (extras_.size() <= id) extras_.resize(2 * static_cast<std::size_t>(id) + 64);
  std::vector<Stream>& used_on = extras_[id].used_on;
  if (std::find(used_on.begin(), used_on.end(), stream) == used_on.end()) used_on.push_back(stream);
}

// ----------------------------------------------------------------------------------------------------- giving back

bool CudaPool::reserve(LaneNumber lane, Bytes size) {
  look_for_virtual_memory();
  return attempt([&] { return pool_.reserve(lane, size); });
}

std::size_t CudaPool::give_back() {
  const std::size_t given = attempt([&] { return pool_.give_back(); });
  memory_.synchronize();
  memory_.trim();
  return given;
}

void CudaPool::settle() {
  attempt([&] { return pool_.settle(); });
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
