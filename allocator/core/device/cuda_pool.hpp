// The lanes behind a C allocator of CUDA memory: what PyTorch's pluggable allocator and CuPy's C functions call. No
// Python in it: no request needs the GIL.
//
//     address ──> block ──> DevicePool ──> arenas in virtual memory, and a heap (cuda_memory.hpp)
//        └──> a block of a graph's (cuda_graphs.hpp)
//
// A block is known by its address. Which address belongs to which block stands in a map under a lock of its own: a free
// takes its entry before the block's end, so no two blocks ever have the same.
//
// A request that finds no memory is made again when all that can go back has gone back; then it throws
// (cuda_errors.hpp), and its text says what fills the memory.
//
// `CudaPool` is of one device, `CudaPools` of all, made on first use. One CudaPools of a process may be installed: the
// exported functions (cuda_exports.hpp) ask it from then on, and it is never destroyed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "address_map.hpp"
#include "cuda_graphs.hpp"
#include "cuda_memory.hpp"
#include "device_pool.hpp"

namespace stowplan::allocator {

// A block that is served: its number, and the memory that it has of the device for itself, or null.
struct Served {
  std::uintptr_t address = 0;
  BlockId id = kNoBlock;
  CudaBlock* memory = nullptr;
};

// What other streams than its own a block is used on.
struct Uses {
  std::vector<Stream> streams;
  std::uint64_t losses = 0;  // of streams, when these were noted
};

class CudaPool {
 public:
  CudaPool(const CudaApi& api, int device, Scope scope, Bytes limit)
      : memory_(api, device, limit), pool_(memory_, scope) {}
  ~CudaPool() { pool_.close(); }

  // By its address: throws where there is no memory.
  void* malloc(Bytes size, Stream stream);
  void free(void* address);
  // Says that another stream than its own uses a block, too: see DevicePool::hold().
  void record_stream(void* address, Stream stream);

  // Without an address that is noted, and outside of graphs' memory. False: `error` says why. `client`: who asks, to
  // the program's own allocator.
  bool serve(Bytes size, Stream stream, void* client, Served& served, CudaError& error);
  void end(const Served& served, const Uses* uses);  // null: none
  void use(const Served& served, Stream stream, Uses& uses);

  // What CUDA refuses of these counts as not done.
  bool reserve(LaneNumber lane, Bytes size);
  std::size_t give_back();
  void settle();
  // Waits for the device; false: it cannot be waited for now.
  bool make_idle() { return memory_.synchronize() == kCudaSuccess; }
  bool is_idle() { return lanes()->counters().live_bytes == 0 && graphs_.reserved_bytes() == 0 && make_idle(); }

  LockedLanes* lanes() { return pool_.lanes(); }
  DevicePool& pool() { return pool_; }
  CudaMemory& memory() { return memory_; }
  CudaGraphs& graphs() { return graphs_; }

 private:
  // What the map has of a block beyond its number.
  struct Extra {
    CudaBlock* memory = nullptr;
    Uses uses;
  };

  void meet(Stream stream);
  void look_for_virtual_memory();

  bool request(Bytes size, Stream stream, void* client, Served& served, CudaError& error);
  void undo(const Served& served);
  bool request_of_graph(Bytes size, Stream stream, void*& address, CudaError& error);
  void note(const Served& served);
  Extra& extra(BlockId id);
  bool is_other(BlockId id, Stream stream);
  void add(Uses& uses, Stream stream) const;
  [[noreturn]] void fail(CudaError error, Bytes size, Stream stream);

  CudaMemory memory_;
  CudaGraphs graphs_{memory_};
  DevicePool pool_;
  std::once_flag looked_;
  SpinLock lock_;
  AddressMap blocks_;
  std::vector<Extra> extras_;  // by block
};

class CudaPools {
 public:
  static constexpr int kMostDevices = 64;

  CudaPools(const CudaApi& api, Scope scope, Bytes limit) : api_(api), scope_(scope), limit_(limit) {}

  CudaPool& on(int device);  // throws CudaFailure where there cannot be such a device
  void* malloc(Bytes size, int device, Stream stream);
  void free(void* address, int device);
  void record_stream(void* address, Stream stream);
  void* base_of(void* address, std::size_t& size);
  void give_back();

  // After a fork: CUDA has stayed behind, and so has all memory.
  void abandon() { abandoned_ = true; }
  bool is_abandoned() const { return abandoned_; }
  bool has_served() const { return has_served_; }
  // Whether no block is alive, and no stream uses what is left, so that it may be destroyed.
  bool is_idle();

  // CuPy's C function for its current stream; null: everything is on stream 0.
  std::intptr_t (*current_stream)() = nullptr;

  static CudaPools* installed() { return installed_; }
  // Precondition: null, or nothing has been asked of the one before.
  static void install(CudaPools* pools) { installed_ = pools; }

 private:
  template <class F>
  void each(F&& f) {
    for (const auto& device : devices_) {
      if (CudaPool* pool = device.load()) f(*pool);
    }
  }

  static inline std::atomic<CudaPools*> installed_{nullptr};

  const CudaApi api_;
  const Scope scope_;
  const Bytes limit_;
  std::atomic<bool> abandoned_{false}, has_served_{false};
  std::mutex mutex_;  // of making a pool
  std::vector<std::unique_ptr<CudaPool>> pools_;
  std::array<std::atomic<CudaPool*>, kMostDevices> devices_{};
};

}  // namespace stowplan::allocator
