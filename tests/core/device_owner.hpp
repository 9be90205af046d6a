// The owner of a device pool for stress programs: streams, events, memory and virtual memory, which keep the books of
// what comes before what, fail at random, and free blocks from within their calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "device_pool.hpp"
#include "happens_before.hpp"

namespace device_stress {

using namespace stowplan::allocator;

constexpr Stream kForeign = 9;  // of another library: blocks are used on it, none is asked for
constexpr Bytes kArena = Bytes{1} << 12;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "device_stress: %s\n", what);
  std::exit(1);
}

inline thread_local bool pending = false;  // an error of the owner's

// Runs something of the pool's that may raise an error of the owner's; whether it did not.
template <class F>
bool survives(F&& f) {
  try {
    f();
  } catch (const OwnersError&) {
    if (!std::exchange(pending, false)) fail("an error that the owner had not raised");
    return false;
  }
  if (pending) fail("an error was not told of");
  return true;
}

// The functions of a device's virtual memory: addresses, and what is mapped there.
class Mappings {
 public:
  static constexpr std::size_t kGranularity = 1024;

  static VirtualMemory functions() {
    VirtualMemory memory;
    memory.reach = 16 * kArena;
    memory.devices = {0};
    memory.granularity = [](std::size_t* size, const MemoryProperties*, int) { return *size = kGranularity, 0; };
    memory.reserve = [](void** address, std::size_t size, std::size_t, void*, unsigned long long) {
      static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 44};
      *address = reinterpret_cast<void*>(next.fetch_add(size));
      return 0;
    };
    memory.free = [](void*, std::size_t) { return 0; };
    memory.create = [](MemoryHandle* handle, std::size_t size, const MemoryProperties*, unsigned long long) {
      const std::lock_guard<std::mutex> lock(mutex());
      if (size == 0 || size % kGranularity != 0) fail("memory is mapped in whole pages");
      if (all().size() % 5 == 4) return VirtualArena::kOutOfMemory;
      *handle = size;
      return 0;
    };
    memory.release = [](MemoryHandle) { return 0; };
    memory.map = [](void* address, std::size_t size, std::size_t, MemoryHandle handle, unsigned long long) {
      const std::lock_guard<std::mutex> lock(mutex());
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      const auto next = all().lower_bound(at);
      const bool free = (next == all().end() || next->first >= at + size) &&
                        (next == all().begin() || std::prev(next)->first + std::prev(next)->second <= at);
      if (!free || handle != size) fail("memory is mapped where there is some already");
      all()[at] = size;
      return 0;
    };
    memory.unmap = [](void* address, std::size_t size) {
      before_unmapping()();
      const std::lock_guard<std::mutex> lock(mutex());
      const auto at = all().find(reinterpret_cast<std::uintptr_t>(address));
      if (at == all().end() || at->second != size) fail("memory is unmapped as it was not mapped");
      all().erase(at);
      return 0;
    };
    memory.set_access = [](void*, std::size_t, const MemoryAccess*, std::size_t) { return 0; };
    return memory;
  }
  static bool any() {
    const std::lock_guard<std::mutex> lock(mutex());
    return !all().empty();
  }
  static std::function<void()>& before_unmapping() {
    static std::function<void()> look = [] {};
    return look;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<std::uintptr_t, std::size_t>& all() {
    static std::map<std::uintptr_t, std::size_t> all;
    return all;
  }
};

// Streams, events and memory. Its tables have a mutex, which is not held while the pool is called.
class Owner {
  enum class Kind { stream, event, memory, error };
  struct Thing {
    Kind kind = Kind::error;
    simulated::HappensBefore::Moment moment = {};  // of an event; of a stream: itself
    Bytes size = 0;
    bool guarded = false;
  };

  static Owner& self(void* owner) { return *static_cast<Owner*>(owner); }
  template <class F>
  auto locked(F&& f) {
    std::lock_guard<std::mutex> lock(mutex_);
    return f();
  }
  // Every call: takes the pool's lock, and lets finalizers run.
  template <class F>
  int called(F&& f) {
    pool.lanes()->counters();
    finalizer();
    return locked([&] { return f(*this); });
  }

 public:
  explicit Owner(Bytes capacity) : capacity_(capacity) {
    Device device;
    device.owner = this;
    device.ask = [](void* owner, void* client, Bytes size, bool, Answer* answer) {
      return self(owner).ask(static_cast<Token*>(client), size, *answer);
    };
    device.trim = [](void* owner) { return self(owner).called([](Owner& o) { return o.faulty() ? o.raise() : 0; }); };
    device.room = [](void* owner, bool all) -> Bytes {
      return self(owner).called([&](Owner& o) {
        return o.faulty() ? o.raise() : all ? 1 << 20 : static_cast<int>(o.random_() % (4 * kArena));
      });
    };
    device.note_arenas = [](void* owner, Bytes) {
      return self(owner).called([](Owner& o) { return o.faulty() ? o.raise() : 0; });
    };
    device.capturing = [](void* owner) {
      return self(owner).called([](Owner& o) { return o.faulty() ? o.raise() : o.captured ? 1 : 0; });
    };
    device.synchronize = [](void* owner) { return self(owner).called([](Owner& o) { return o.synchronize(); }); };
    device.record = [](void* owner, Token stream, Token* event) {
      return self(owner).called([&](Owner& o) { return o.record(stream, *event); });
    };
    device.done = [](void* owner, Token event) {
      return self(owner).called([&](Owner& o) { return o.done(o.find(event, Kind::event)); });
    };
    device.wait = [](void* owner, Stream stream, Token event) {
      return self(owner).called([&](Owner& o) { return o.wait(stream, o.find(event, Kind::event)); });
    };
    device.unguard = [](void* owner, Token memory) {
      self(owner).called([&](Owner& o) { return o.find(memory, Kind::memory).guarded = false, 0; });
    };
    device.drop = [](void* owner, Token token) { self(owner).drop(token); };
    device.forget_error = [](void*) {
      if (!std::exchange(pending, false)) fail("an error was forgotten that the owner had not raised");
    };
    pool.connect(device);
  }

  Token new_stream(Stream stream) {
    return locked([&] { return add({Kind::stream, {stream, 0, {}}}); });
  }
  void guard(Token memory) {
    locked([&] { find(memory, Kind::memory).guarded = true; });
  }
  void drop(Token token) {
    called([&](Owner& o) {
      const auto at = o.things_.find(token);
      if (at == o.things_.end()) fail("dropped twice");
      if (at->second.guarded) o.order_.see_all();
      if (at->second.kind == Kind::memory) o.in_use_ -= at->second.size;
      o.things_.erase(at);
      return 0;
    });
  }
  bool has_seen_all() {
    return locked([&] { return order_.has_seen_all(); });
  }
  std::size_t things() {
    return locked([&] { return things_.size(); });
  }

  // What a program does on the device, and what it may see. For one thread.
  std::uint64_t use(Stream stream) {
    return locked([&] { return order_.give(stream); });
  }
  void run_some(std::mt19937& random) {
    locked([&] { order_.run_some(random); });
  }
  void see_all() {
    locked([&] { order_.see_all(); });
  }
  bool precedes(Stream earlier, std::uint64_t number, Stream later) {
    return locked([&] { return order_.precedes(earlier, number, later); });
  }

  DevicePool pool;
  std::atomic<bool> captured{false};        // all streams; or
  std::atomic<bool> foreign{false};         // the foreign one
  std::atomic<unsigned> fault_rate{0};      // one call in so many fails
  std::function<void()> finalizer = [] {};  // runs within calls
  bool faultless = true;
  std::atomic<std::uint64_t> waits{0}, settled{0};

 private:
  int raise() {
    pending = true;
    return -1;
  }
  bool faulty() { return fault_rate != 0 && random_() % fault_rate == 0; }
  Token add(const Thing& thing) {
    things_[++last_] = thing;
    return last_;
  }
  Thing& find(Token token, Kind kind) {
    const auto at = things_.find(token);
    if (at == things_.end() || at->second.kind != kind) fail("this is not kept, or of another kind");
    return at->second;
  }

  int ask(Token* client, Bytes size, Answer& answer) {
    return called([&](Owner&) {
      if (faulty()) return raise();
      if (in_use_ + size > capacity_) {
        answer.error = add({Kind::error});
        answer.out_of_memory = true;
        return 0;
      }
      in_use_ += size;
      answer.address = next_;
      next_ += static_cast<std::uintptr_t>(size) + 4096;
      (client != nullptr ? *client : answer.memory) = add({Kind::memory, {}, size, client == nullptr});
      return 0;
    });
  }
  int synchronize() {
    if (captured || foreign) return raise();
    order_.see_all();
    return faulty() ? raise() : 0;  // nothing runs on a device that cannot be waited for
  }
  int record(Token stream, Token& event) {
    const Stream on = find(stream, Kind::stream).moment.stream;
    if (!captured && !foreign && faulty()) return raise();
    event = captured || (foreign && on == kForeign) ? 0 : add({Kind::event, order_.now(on)});
    return 0;
  }
  int done(const Thing& event) {
    if (captured) fail("an event was asked after during a capture");
    if (!order_.see(event.moment)) return 0;
    ++settled;
    return 1;
  }
  int wait(Stream stream, const Thing& event) {
    if (captured) fail("a stream that is being captured was to wait for work from before");
    if (!foreign && faulty()) return synchronize(), raise();  // nor on a stream that cannot wait
    order_.follow(stream, event.moment);
    ++waits;
    return 0;
  }

  const Bytes capacity_;
  std::mutex mutex_;
  std::map<Token, Thing> things_;
  Token last_ = 0;
  Bytes in_use_ = 0;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
  std::mt19937 random_{1};
  simulated::HappensBefore order_;
};

}  // namespace device_stress
