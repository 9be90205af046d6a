#include "cuda_memory.hpp"

#include <algorithm>
#include <utility>

#include "apart.hpp"
#include "thread_stream.hpp"

// CUDA calls that a capture forbids are made with `WhileCapturing`: they have nothing to do with it.

namespace stowplan::allocator {

namespace {

// While it is there, no stream leaves. A thread that frees within a function of CUDA's has it already.
class Staying {
 public:
  explicit Staying(std::shared_mutex& streams) : streams_(streams), outer_(std::exchange(inner(), &streams)) {
    if (outer_ != &streams) streams.lock_shared();
  }
  Staying(const Staying&) = delete;
  Staying& operator=(const Staying&) = delete;
  ~Staying() {
    if (outer_ != &streams_) streams_.unlock_shared();
    inner() = outer_;
  }

 private:
  static std::shared_mutex*& inner() {
    thread_local std::shared_mutex* mutex = nullptr;
    return mutex;
  }
  std::shared_mutex& streams_;
  std::shared_mutex* const outer_;
};

}  // namespace

CudaMemory::~CudaMemory() {
  for (const auto& [address, block] : blocks_) block->graph = nullptr;
  waiting_.insert(waiting_.end(), of_graphs_.begin(), of_graphs_.end());
  of_graphs_.clear();
  *any_waits_ = true;
  settle();
}

void CudaMemory::note_stream(Stream stream) {
  const Apart apart;
  const std::unique_lock lock(streams_);
  served_.insert(stream == kPerThread ? 0 : stream);  // the legacy stream waits for all threads' own
  has_own_ = has_own_ || stream == kPerThread;
  last_served_.store(stream, std::memory_order_release);
}

std::vector<Stream> CudaMemory::served() {
  const Staying staying(streams_);
  return {served_.begin(), served_.end()};
}

bool CudaMemory::is_served(Stream stream) {
  const Staying staying(streams_);
  return served_.count(stream < 0 || stream == kPerThread ? 0 : stream) != 0;
}

CudaError CudaMemory::record_if_served(CudaEvent& event, Stream stream) {
  const Apart apart;
  const Staying staying(streams_);
  return is_served(stream) ? record_event(api_, device_, stream, event) : kCudaInvalidHandle;
}

bool CudaMemory::is_capturing(Stream stream) {
  const Staying staying(streams_);
  return is_served(stream) && allocator::is_capturing(api_, stream);
}

bool CudaMemory::is_capturing() {
  const std::vector<Stream> streams = served();
  if (streams.empty()) return false;
  const OnDevice on(api_, device_);
  return std::any_of(streams.begin(), streams.end(), [this](Stream stream) {
    return is_capturing(stream) && (program_.has_dropped == nullptr || !program_.has_dropped(program_.self, stream));
  });
}

bool CudaMemory::leave(Stream stream, bool if_idle) {
  const Apart apart;
  if (if_idle && !is_idle(stream)) return false;
  CudaEvent event = nullptr;
  const CudaError error = record_if_served(event, stream);
  if (error == kCudaCaptureUnsupported) return false;
  if (error != kCudaSuccess) {
    heap_.leave(stream, nullptr);
    lose(stream);
    return true;
  }
  const Left left(event, Destroy{this});
  end_left(false);
  locked(mutex_, [&] { left_.push_back(left); });
  heap_.leave(stream, event);
  erase(stream);
  return true;
}

// From here on CUDA is asked nothing of a stream.
void CudaMemory::erase(Stream stream) {
  const Apart apart;
  const std::unique_lock lock(streams_);
  served_.erase(stream);
  last_served_ = -1;
  ++departures_;
}

void CudaMemory::lose(Stream stream) {
  if (!is_served(stream)) return;
  {
    const Lock lock(mutex_);
    lost_.push_back(stream);
    *any_waits_ = true;
    ++losses_;
  }
  erase(stream);
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
  const std::vector<Stream> streams = served();
  if (streams.empty() && losses_ == awaited_) return end_left(true);  // nothing makes a context
  const Apart apart;
  const OnDevice on(api_, device_);
  const WhileCapturing allowed(api_);
  CudaError error = kCudaSuccess;
  bool any_ended = false;
  std::vector<CudaEvent> events;
  for (const Stream stream : streams) {
    CudaEvent event = nullptr;
    const CudaError recorded = record_if_served(event, stream);
    if (recorded == kCudaSuccess) {
      events.push_back(event);
    } else if (recorded == kCudaCaptureUnsupported) {
      error = recorded;
    } else {
      any_ended = true;
    }
  }
  const std::uint64_t losses = losses_;
  any_ended = any_ended || losses != awaited_;
  for (CudaEvent event : events) {
    if (error == kCudaSuccess) error = checked(api_.event_synchronize(event));
    destroy(event);
  }
  if (error == kCudaSuccess) error = end_left(true);
  if (error == kCudaSuccess && any_ended) error = checked(api_.device_synchronize());
  if (error == kCudaSuccess) awaited_ = losses;
  return error;
}

// Has events stand behind what the streams have been given. Idle ones need none: an event on the legacy stream would
// have the blocking streams wait for each other.
CudaError CudaMemory::mark(std::vector<CudaEvent>& events, std::size_t& used) {
  const std::uint64_t losses = awaited_;
  used = 0;
  for (const Stream stream : served()) {
    if (is_idle(stream)) continue;
    if (used == events.size()) events.push_back(nullptr);
    const CudaError error = record_if_served(events[used], stream);
    if (error == kCudaSuccess)
      ++used;
    else if (is_served(stream))  // else it has left meanwhile
      return error;
  }
  return losses == losses_ ? kCudaSuccess : kCudaInvalidHandle;  // for what is lost the device has to be waited for
}

CudaError CudaMemory::order(Stream stream, CudaEvent event) {
  const Staying staying(streams_);
  // A thread's own default stream has a number of its own here, and one handle for the driver.
  if (!is_served(stream) || (stream < 0 && stream != ThreadStream::own())) return kCudaInvalidHandle;
  return checked(api_.stream_wait_event(stream_handle(stream < 0 ? kPerThread : stream), event, 0));
}

// Whether nothing is under way on a stream.
bool CudaMemory::is_idle(Stream stream) {
  const Staying staying(streams_);
  const OnDevice on(api_, device_);
  if (!is_served(stream) || (stream == 0 && has_own_) || allocator::is_capturing(api_, stream)) return false;
  const WhileCapturing allowed(api_);
  return checked(api_.stream_query(stream_handle(stream))) == kCudaSuccess;
}

// Drops the events of streams that have left which are over; waits for them all, or asks.
CudaError CudaMemory::end_left(bool waits) {
  const std::vector<Left> left = locked(mutex_, [&] { return left_; });
  std::vector<Left> over;
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

// Makes the record of the graph that a stream is captured into; the driver tells it of the graph's end.
std::shared_ptr<GraphLife> CudaMemory::begin_life(Stream stream) const {
  const Apart apart;
  const WhileCapturing allowed(api_);
  auto life = std::make_shared<GraphLife>();
  life->any_news = any_waits_;
  auto* const known = new std::shared_ptr<GraphLife>(life);
  const auto over = [](void* argument) {
    const std::unique_ptr<std::shared_ptr<GraphLife>> gone(static_cast<std::shared_ptr<GraphLife>*>(argument));
    (*gone)->is_over = true;
    *(*gone)->any_news = true;
  };
  if (!tell_end_of_graph(api_, stream, over, known)) delete known;
  return life;
}

CudaError CudaMemory::ask(CudaBlock& block, const Wanted& wanted) {
  if (!wanted.for_all && allocator::is_capturing(api_, block.stream)) block.graph = begin_life(block.stream);
  CudaError error = kCudaSuccess;
  if (program_.serves_all || (wanted.is_sample && program_.serves_samples)) {
    std::uintptr_t address = 0;
    error = program_.take(program_.self, wanted.client, wanted.size, &address, &block.foreign);
    block.address = reinterpret_cast<void*>(address);
    return error;
  }
  // A thread's own default stream is another one to the thread that frees the block.
  const Stream own = block.stream == kPerThread ? ThreadStream::own() : block.stream;
  const Stream stream = wanted.for_all || block.graph != nullptr ? DeviceHeap::kShared : own;
  error = heap_.take(block.size, stream, block.place);
  block.address = reinterpret_cast<void*>(block.place.address);
  return error;
}

CudaBlock* CudaMemory::take(const Wanted& wanted, CudaError& error) {
  settle();
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
  if (is_capturing(block.stream)) return false;
  return !block.guarded || synchronize() == kCudaSuccess;
}

void CudaMemory::give(CudaBlock* block) {
  if (block->graph != nullptr) return put_off(block);
  const OnDevice on(api_, device_);
  may_go(*block) ? go(block) : put_off(block);
}

void CudaMemory::put_off(CudaBlock* block) {
  const Lock lock(mutex_);
  (block->graph != nullptr ? of_graphs_ : waiting_).push_back(block);
  *any_waits_ = true;
}

void CudaMemory::go(CudaBlock* block) {
  const Apart apart;
  const auto node = locked(mutex_, [&] { return blocks_.extract(reinterpret_cast<std::uintptr_t>(block->address)); });
  if (block->foreign != 0) {
    program_.give(program_.self, block->foreign);
  } else {
    heap_.give(block->place);
  }
  delete block;
}

void CudaMemory::settle() {
  if (!*any_waits_) return;
  std::vector<CudaBlock*> waiting;
  std::vector<Stream> lost;
  {
    const Lock lock(mutex_);
    *any_waits_ = false;
    waiting_.reserve(waiting_.size() + of_graphs_.size());
    waiting.swap(waiting_);
    lost.swap(lost_);
    const auto gone = std::partition(of_graphs_.begin(), of_graphs_.end(),
                                     [](const CudaBlock* block) { return !block->graph->is_over; });
    for (auto at = gone; at != of_graphs_.end(); ++at) {
      (*at)->graph = nullptr;
      (*at)->guarded = true;  // the program may have used it on any stream
      waiting.push_back(*at);
    }
    of_graphs_.erase(gone, of_graphs_.end());
  }
  for (const Stream stream : lost) heap_.leave(stream, nullptr);
  for (CudaBlock* block : waiting) give(block);
}

void CudaMemory::trim() {
  const Apart apart;
  settle();
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
