// What memory is allocated, where, and what it counts for.
//
// All addresses are one range: a part for each device, then managed memory, pinned memory of the host, and reserved
// addresses. So one comparison says whether a word can be an address of ours, and a division whose.
//
//   |  device 0  |  device 1  | ... |  managed  |  pinned  |  reserved (hipMemAddressReserve)  |
//
// A device's memory is counted in granules of SIMHIP_GRANULARITY bytes: a block of more than half of one takes whole
// granules, smaller ones share granules, each of which is taken while a block of it lives. `used` and the context are
// what hipMemGetInfo lacks.
// Managed and pinned memory have counts of their own, and no limit.
//
// A lock of its own guards this, taken after the device's lock where both are held. O(log n) for n blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "address_space.hpp"
#include "hip.hpp"

namespace simhip {

constexpr std::size_t kUnit = 512;  // bytes: blocks are multiples

constexpr std::size_t up(std::size_t size, std::size_t multiple) { return (size + multiple - 1) / multiple * multiple; }

enum class Kind : std::uint8_t { device, ordered, managed, pinned, mapped };

struct Block {
  std::uintptr_t base;
  std::size_t size;
  std::size_t counted;
  Kind kind;
  bool coming;  // allocated in the program's order, not yet in the stream's
  bool going;   // freed in the program's order; work of before may still use it
  int device;
  std::uint64_t number;
  std::uint64_t access;  // mapped, ordered: a bit for each device that may use it
  void* pool;            // ordered: what counts it
  std::size_t* granule;  // device: the bytes in use of the one that it shares; null: it shares none
};

struct Count {
  std::size_t used = 0;
  std::size_t peak = 0;
  std::size_t managed = 0;
  std::size_t context = 0;  // counted apart, within the limit
};

class Memory {
 public:
  Memory();

  // hipErrorOutOfMemory where the device's limit, or the host, has no room. Ordered memory is counted by its pool.
  hipError_t allocate(Kind kind, int device, std::size_t size, void** out, void* pool = nullptr,
                      std::uint64_t access = 0);

  // The block that begins there, marked as going; none where there is no such block, or another thread frees it.
  std::optional<Block> begin_free(const void* base);
  void cancel_free(const void* base);
  void end_free(const void* base);
  void begin_life(const void* base);

  std::optional<Block> find(const void* at);

  // Counts bytes of a device, where its limit has room for them.
  bool charge(int device, std::size_t size);
  void discharge(int device, std::size_t size);
  bool add_context(int device);
  Count count(int device);
  std::size_t pinned();
  void reset_peak(int device);

  // Reserved addresses, and what is mapped there. The range of a mapping is the caller's to choose.
  std::uintptr_t reserve(std::size_t size, std::size_t alignment);
  void unreserve(std::uintptr_t base);
  void add_mapping(std::uintptr_t base, std::size_t size, int device);
  void set_access(std::uintptr_t base, int device, bool may);
  void set_pool_access(const void* pool, std::uint64_t access);
  void remove_mapping(std::uintptr_t base);

  bool is_ours(std::uintptr_t at) const { return at - base_ < size_; }

  // Why work of a device (-1: a copy, of any) may not use the range; empty where it may. Where `size` is 0, the range
  // is a pointer into a block, or to its end.
  std::string refusal(std::uintptr_t at, std::size_t size, int device);

  // What is, or was, there.
  std::string describe(std::uintptr_t at);

  void set_peer(int device, int other, bool may);
  bool is_peer(int device, int other);

  // Makes all memory of devices accessible, or inaccessible, to everything.
  void open_all(bool open);

 private:
  struct Grave {
    std::size_t size;
    std::string text;
  };

  AddressSpace& space_of(Kind kind, int device);
  const Block* at(std::uintptr_t address) const;
  std::string refusal_of(const Block& block, int device) const;
  std::string describe_locked(std::uintptr_t at) const;
  std::string text_of(const Block& block) const;
  bool charge_locked(int device, std::size_t size);
  bool charge_block(Block& block);
  void discharge_block(const Block& block);
  void bury(const Block& block, const char* how);

  std::mutex mutex_;
  std::uintptr_t base_;
  std::size_t size_;
  std::vector<AddressSpace> spaces_;  // of each device, managed, pinned, reserved
  std::vector<Count> counts_;
  std::vector<std::list<std::size_t>> granules_;  // that blocks of each device share: bytes in use
  std::vector<std::vector<char>> peers_;
  std::map<std::uintptr_t, Block> blocks_;
  std::map<std::uintptr_t, Grave> graves_;
  std::deque<std::uintptr_t> buried_;  // oldest first
  std::size_t pinned_ = 0;
  std::uint64_t numbers_ = 0;
  bool open_ = true;
};

Memory& memory();

}  // namespace simhip
