// A CUDA device of which only the order of things is simulated: streams, events, captures, memory and virtual
// memory, over addresses that no test reads. A process has one; any thread may call it.
//
// Memory that goes back, and a kernel that touches an address after another block's, must come after all that used it
// (`HappensBefore`); else it fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cuda_pool.hpp"
#include "happens_before.hpp"
#include "stress.hpp"

namespace simulated {

using namespace stowplan::allocator;

using stress::fail;

class Cuda {
  using Event = HappensBefore::Moment;
  struct Use {
    std::uintptr_t begin, end;
    Stream stream;
    std::uint64_t number;
    std::uint64_t block;
  };
  class Lock {
   public:
    explicit Lock(std::mutex& mutex) : lock_(mutex) { ++inside; }
    ~Lock() { --inside; }

   private:
    std::lock_guard<std::mutex> lock_;
  };
  static Cuda& self() {
    static Cuda one;
    return one;
  }
  static Stream number_of(CudaStream stream) { return static_cast<Stream>(reinterpret_cast<std::intptr_t>(stream)); }

 public:
  static Cuda& get() { return self(); }
  // Whether this thread runs a function of the device's.
  static inline thread_local int inside = 0;

  CudaApi api() {
    CudaApi api;
    api.malloc = [](void** ptr, std::size_t size) { return self().allocate(ptr, size); };
    api.free = [](void* ptr) { return self().give(ptr); };
    api.count_devices = [](int* count) { return *count = 2, kCudaSuccess; };
    api.can_access_peer = [](int* can, int, int) { return *can = 1, kCudaSuccess; };
    api.memory_info = [](std::size_t* free, std::size_t* total) {
      const Lock lock(self().mutex_);
      *total = static_cast<std::size_t>(self().capacity);
      *free = static_cast<std::size_t>(std::max<Bytes>(self().capacity - self().in_use_, 0));
      return kCudaSuccess;
    };
    api.event_create = [](CudaEvent* event, unsigned) {
      if (self().is_faulty()) return self().error(400);
      const Lock lock(self().mutex_);
      *event = reinterpret_cast<CudaEvent>(new Event{});
      ++self().events;
      return kCudaSuccess;
    };
    api.event_record = [](CudaEvent event, CudaStream stream) { return self().record(event, number_of(stream)); };
    api.event_query = [](CudaEvent event) { return self().query(*reinterpret_cast<Event*>(event)); };
    api.event_synchronize = [](CudaEvent event) { return self().await(*reinterpret_cast<Event*>(event)); };
    api.event_destroy = [](CudaEvent event) {
      delete reinterpret_cast<Event*>(event);
      --self().events;
      return kCudaSuccess;
    };
    api.stream_wait_event = [](CudaStream stream, CudaEvent event, unsigned) {
      return self().wait(number_of(stream), *reinterpret_cast<Event*>(event));
    };
    api.stream_query = [](CudaStream) { return kCudaNotReady; };
    api.stream_is_capturing = [](CudaStream stream, int* status) {
      const Stream captured = self().captured;
      if (captured != kNone && number_of(stream) == 0) return self().error(906);  // asked of the legacy stream
      *status = number_of(stream) == captured;
      return kCudaSuccess;
    };
    api.exchange_capture_mode = [](int* mode) {
      std::swap(*mode, capture_mode());
      return kCudaSuccess;
    };
    api.device_synchronize = [] { return self().synchronize(); };
    api.get_device = [](int* device) {
      *device = current_device();
      return kCudaSuccess;
    };
    api.set_device = [](int device) {
      current_device() = device;
      return kCudaSuccess;
    };
    api.get_last_error = [] { return std::exchange(last_error(), kCudaSuccess); };
    api.error_string = [](CudaError) { return "simulated"; };
    api.granularity = [](std::size_t* size, const MemoryProperties*, int) { return *size = page, kCudaSuccess; };
    api.reserve = [](void** address, std::size_t size, std::size_t, void*, unsigned long long) {
      const Lock lock(self().mutex_);
      *address = reinterpret_cast<void*>(self().next_range_);
      self().next_range_ += size;
      return kCudaSuccess;
    };
    api.unreserve = [](void*, std::size_t) { return kCudaSuccess; };
    api.create = [](MemoryHandle* handle, std::size_t size, const MemoryProperties*, unsigned long long) {
      return self().create(*handle, size);
    };
    api.release = [](MemoryHandle handle) {
      const Lock lock(self().mutex_);
      self().in_use_ -= static_cast<Bytes>(handle);
      return kCudaSuccess;
    };
    api.map = [](void* address, std::size_t size, std::size_t, MemoryHandle handle, unsigned long long) {
      return self().map(reinterpret_cast<std::uintptr_t>(address), size, handle);
    };
    api.unmap = [](void* address, std::size_t size) {
      return self().unmap(reinterpret_cast<std::uintptr_t>(address), size);
    };
    api.set_access = [](void*, std::size_t, const MemoryAccess*, std::size_t) {
      return self().fails() ? error(kCudaOutOfMemory) : kCudaSuccess;
    };
    return api;
  }

  static constexpr Stream kNone = -1;
  static inline std::size_t page = 1024;  // of virtual memory
  std::atomic<Stream> captured{kNone};
  std::atomic<bool> captures_apart{false};    // a stream that does not wait for the legacy one is being captured
  std::atomic<unsigned> fault_rate{0};        // one call in so many fails
  std::function<void()> within = [] {};       // runs within calls that may fail, as a finalizer may
  std::function<void()> before_wait = [] {};  // runs before a stream is told to wait
  std::atomic<Bytes> capacity{Bytes{1} << 40};
  std::atomic<std::int64_t> events{0};
  std::atomic<std::uint64_t> waits{0}, faults{0};
  static CudaError& last_error() {
    static thread_local CudaError error = kCudaSuccess;
    return error;
  }
  static int& current_device() {
    static thread_local int device = 0;
    return device;
  }

  // A kernel on a stream, which touches a block.
  void use(void* address, Bytes size, Stream stream, std::uint64_t block) {
    const Lock lock(mutex_);
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const auto end = begin + static_cast<std::uintptr_t>(size);
    for (auto at = uses_.begin(); at != uses_.end();) {
      if (order_.has_seen(at->stream, at->number)) {
        at = uses_.erase(at);
        continue;
      }
      const bool overlaps = at->begin < end && begin < at->end && at->block != block;
      if (overlaps && !precedes(*at, stream)) fail("a stream was not waited for");
      ++at;
    }
    if (begin >= kRanges && !is_mapped(begin, end)) fail("a block has no memory");
    uses_.push_back({begin, end, stream, order_.give(stream), block});
  }
  // What the program itself orders.
  void order(Stream first, Stream then) {
    const Lock lock(mutex_);
    order_.follow(then, order_.now(first));
  }
  void run_some(std::mt19937& random) {
    const Lock lock(mutex_);
    order_.run_some(random);
  }
  // Whether a call is to fail.
  bool fails() {
    if (fault_rate == 0 || captured != kNone) return false;
    const Lock lock(mutex_);
    if (random_() % fault_rate != 0) return false;
    ++faults;
    return true;
  }
  // Whether a range has memory.
  bool has(std::uintptr_t begin, std::uintptr_t end) {
    const Lock lock(mutex_);
    if (begin >= kRanges) return is_mapped(begin, end);
    const auto next = live_.upper_bound(begin);
    return next != live_.begin() &&
           end <= std::prev(next)->first + static_cast<std::uintptr_t>(std::prev(next)->second);
  }
  // Forgets all memory, also what a pool still holds.
  void forget() {
    live_.clear();
    mapped_.clear();
    in_use_ = 0;
  }
  std::size_t blocks() {
    const Lock lock(mutex_);
    return live_.size();
  }
  std::size_t pieces() {
    const Lock lock(mutex_);
    return mapped_.size();
  }
  Bytes in_use() {
    const Lock lock(mutex_);
    return in_use_;
  }

 private:
  static int& capture_mode() {
    static thread_local int mode = 0;
    return mode;
  }
  bool is_faulty() {
    within();
    return fails();
  }
  static CudaError error(CudaError number) { return last_error() = number; }
  void refuse_in_capture(const char* what) const {
    if (captured != kNone && capture_mode() != kCudaRelaxed) fail(what);
  }
  bool precedes(const Use& use, Stream later) { return order_.precedes(use.stream, use.number, later); }

  CudaError allocate(void** ptr, std::size_t bytes) {
    refuse_in_capture("memory was asked for in a capture");
    if (is_faulty()) return error(kCudaOutOfMemory);
    const auto size = static_cast<Bytes>(bytes);
    const Lock lock(mutex_);
    if (in_use_ + size > capacity) return error(kCudaOutOfMemory);
    in_use_ += size;
    live_[next_] = size;
    *ptr = reinterpret_cast<void*>(next_);
    next_ += (bytes + 511) / 512 * 512 + 512 * (next_ / 512 % 2);  // some touch
    return kCudaSuccess;
  }
  CudaError give(void* ptr) {
    if (captured != kNone) fail("memory went back in a capture");
    const Lock lock(mutex_);
    const auto begin = reinterpret_cast<std::uintptr_t>(ptr);
    const auto at = live_.find(begin);
    if (at == live_.end()) fail("memory went back twice");
    const auto end = begin + static_cast<std::uintptr_t>(at->second);
    in_use_ -= at->second;
    live_.erase(at);
    for (const Use& use : uses_) {
      if (use.begin >= end || begin >= use.end) continue;
      if (!order_.has_seen(use.stream, use.number)) fail("memory went back while it was used");
    }
    return kCudaSuccess;
  }
  CudaError create(MemoryHandle& handle, std::size_t size) {
    if (size == 0 || size % page != 0) fail("memory is mapped in whole pages");
    if (is_faulty()) return error(kCudaOutOfMemory);
    const Lock lock(mutex_);
    if (in_use_ + static_cast<Bytes>(size) > capacity) return error(kCudaOutOfMemory);
    in_use_ += static_cast<Bytes>(size);
    handle = size;
    return kCudaSuccess;
  }
  CudaError map(std::uintptr_t begin, std::size_t size, MemoryHandle handle) {
    const bool fault = fails();
    const Lock lock(mutex_);
    const auto next = mapped_.lower_bound(begin);
    const bool is_free = (next == mapped_.end() || next->first >= begin + size) &&
                         (next == mapped_.begin() || std::prev(next)->first + std::prev(next)->second <= begin);
    if (!is_free || handle != size) fail("memory is mapped where there is some already");
    if (fault) return error(kCudaOutOfMemory);
    mapped_[begin] = size;
    return kCudaSuccess;
  }
  CudaError unmap(std::uintptr_t begin, std::size_t size) {
    const Lock lock(mutex_);
    const auto at = mapped_.find(begin);
    if (at == mapped_.end() || at->second != size) fail("memory is unmapped as it was not mapped");
    for (const Use& use : uses_) {
      const bool overlaps = use.begin < begin + size && begin < use.end;
      if (overlaps && !order_.has_seen(use.stream, use.number)) fail("memory is unmapped that a stream may use");
    }
    mapped_.erase(at);
    return kCudaSuccess;
  }
  bool is_mapped(std::uintptr_t begin, std::uintptr_t end) const {
    while (begin < end) {
      const auto next = mapped_.upper_bound(begin);
      if (next == mapped_.begin() || std::prev(next)->first + std::prev(next)->second <= begin) return false;
      begin = std::prev(next)->first + std::prev(next)->second;
    }
    return true;
  }
  CudaError record(CudaEvent event, Stream stream) {
    if (stream == captured) fail("an event from outside was recorded in a capture");
    if (is_faulty()) return error(400);
    const Lock lock(mutex_);
    if (stream == 0) order_.follow(0, order_.now(kPerThread));  // the legacy stream waits for these
    *reinterpret_cast<Event*>(event) = order_.now(stream);
    return kCudaSuccess;
  }
  CudaError query(const Event& event) {
    refuse_in_capture("an event was asked after in a capture");
    const Lock lock(mutex_);
    if (!order_.see(event)) return error(kCudaNotReady);
    return kCudaSuccess;
  }
  CudaError await(const Event& event) {
    refuse_in_capture("an event was waited for in a capture");
    const Lock lock(mutex_);
    order_.await(event);
    return kCudaSuccess;
  }
  CudaError wait(Stream stream, const Event& event) {
    before_wait();
    if (stream == captured) fail("a stream that is being captured was to wait for work from before");
    if (is_faulty()) return see_all(), error(400);  // nothing runs on a stream that cannot wait
    const Lock lock(mutex_);
    order_.follow(stream, event);
    ++waits;
    return kCudaSuccess;
  }
  CudaError synchronize() {
    if (captured != kNone) fail("the device was waited for in a capture");
    if (captures_apart) return error(kCudaCaptureUnsupported);
    const bool fails = is_faulty();
    see_all();  // nothing runs on a device that cannot be waited for
    return fails ? error(700) : kCudaSuccess;
  }
  void see_all() {
    const Lock lock(mutex_);
    order_.see_all();
  }

  std::mutex mutex_;
  std::mt19937 random_{1};
  HappensBefore order_;
  std::vector<Use> uses_;
  std::map<std::uintptr_t, Bytes> live_;
  Bytes in_use_ = 0;
  static constexpr std::uintptr_t kRanges = std::uintptr_t{1} << 50;
  std::uintptr_t next_ = std::uintptr_t{1} << 40, next_range_ = kRanges;
  std::map<std::uintptr_t, std::size_t> mapped_;  // pieces
};

}  // namespace simulated
