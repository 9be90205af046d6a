// Blocks of an allocator that is only observed: the caller reports each allocation and free, by address.
//
//     the caller reports       the step's log
//     allocated(a, 700)        request 0
//     allocated(a, 40)         free of request 0, which was not reported; request 1
//     freed(a)                 free of request 1
//     allocated(0, 0)          request 2, and its free: an empty block
//     allocated(0, 10 ** 15)   nothing: it could not be had
//
// O(1) expected for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "address_map.hpp"
#include "passive_service.hpp"

namespace stowplan::profiler {

class ToldBlocks {
 public:
  // Requests below `small` bytes are left out. `all_threads`: a step is one of all threads, in the order of their
  // requests.
  ToldBlocks(std::size_t small, bool all_threads)
      : small_(static_cast<Bytes>(small)), all_threads_(all_threads), service_(Upstream{}) {}

  void allocated(std::uintptr_t address, Bytes size, Stream stream) {
    if (size >= small_) service_.before_request();
    std::lock_guard<SpinLock> lock(lock_);
    release(address);
    if (size < small_) return;
    const BlockId id = service_.request(size, stream, thread()).id;
    if (address == 0 && size > 0) return service_.cancel(id);
    service_.adopt(id, address);
    if (address == 0) {
      service_.release(id);
    } else {
      by_address_.insert(address, id);
    }
  }

  void freed(std::uintptr_t address) {
    std::lock_guard<SpinLock> lock(lock_);
    release(address);
  }

  ThreadId thread() const { return all_threads_ ? 0 : current_thread(); }  // whose steps the caller's requests lie in
  SpinLock& lock() { return lock_; }
  PassiveService& service() { return service_; }

 private:
  void release(std::uintptr_t address) {
    if (address == 0) return;  // the map's empty cells
    const BlockId id = by_address_.take(address);
    if (id != kNoBlock) service_.release(id);
  }

  const Bytes small_;
  const bool all_threads_;
  SpinLock lock_;
  PassiveService service_;
  AddressMap by_address_;
};

}  // namespace stowplan::profiler
