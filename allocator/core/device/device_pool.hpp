// The lanes behind a device allocator: one lock around them, and nothing that knows Python inside.
//
// Other streams than its own may use a block. Then its free is a *hold* (replay.hpp): an event is recorded on each of
// them, and the block's range stays taken until
//     settle()    sees all of its events done, or
//     request()   is served in its place, once the stream that asks has been told to wait for all of its events.
// A stream that is being captured takes no event: its one is recorded by the first settle() after the capture. Nor may
// it wait for what came before the capture: while one is, held blocks are in the way of every request. A stream that
// fails to take an event has ended: its work is over when all others have been waited for.
//
// Upstream is asked after a settle(); if it has no memory, once more if anything could be given back; then the arena
// takes the block in, wherever there is room. The memory of an arena, or of a held block, is guarded by the owner: if
// it must go while streams may use it, they are waited for.
//
// While a stream is being captured none is waited for, and what would have to wait is put off.
//
// The device never has more in use than has been live at a time, and a little. Where it would have, for a block that an
// arena has no place for, arenas in virtual memory *shrink* first: pages in which nothing lives go back to the device.
// They come again when there is room, some steps later.
//
// Memory is reserved once. An arena in virtual memory takes all that it lacks. Where there is no room for that
// (Device::room), the arena maps the pages that requests need, while blocks from before it are freed. Best fit places
// the blocks with the longest lifetimes at the bottom; as long as these still live elsewhere, the bottom has no memory.
// Without virtual memory, upstream first frees what it has cached, then the pool frees an arena without live blocks,
// and then upstream allocates the larger one.
//
// Any thread, at any time; finalizers, too. The lock guards lanes, held blocks and arenas. The owner (device.hpp) is
// never called under it, so a call of it finds all in order, and what was looked at before must be looked at again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apart.hpp"
#include "device.hpp"
#include "locked_lanes.hpp"
#include "virtual_arena.hpp"

namespace stowplan::allocator {

class DevicePool {
 public:
  static constexpr Stream kPerThread = allocator::kPerThread;

  explicit DevicePool(Scope scope = Scope::thread) : lanes_(kUnit, scope), is_shared_(scope == Scope::process) {}

  // Once, before all else.
  void connect(const Device& device) { device_ = device; }
  const Device& owner() const { return device_; }
  // Once, before the first arena: they come from the device's virtual memory, if it has any.
  void use_virtual_memory(const VirtualMemory& memory) { virtual_memory_ = memory; }
  bool has_virtual_memory() const { return virtual_memory_.reach != 0; }
  // Drops all that it keeps of the owner's; nothing but the destructor comes after it. Returns mappings that streams
  // may still use.
  std::vector<std::shared_ptr<VirtualArena>> close();

  // Address 0: upstream's turn, see ask_upstream(). No block: there was no memory to note it, and what upstream has for
  // it is none of the pool's.
  Grant request(Bytes size, Stream stream) {
    if (has_growing_.load(std::memory_order_relaxed)) grow_arenas(size);
    const ThreadId thread = profiler::current_thread();
    const Stream own = stream == kPerThread ? stream_of_thread() : stream;
    Grant grant;
    std::vector<HeldPtr> awaited;
    bool may_wait = false;
    const bool any_held = any_held_.load(std::memory_order_relaxed);
    if (any_held && !look_for_held(size, own, thread, may_wait)) return grant;
    {
      std::lock_guard<profiler::SpinLock> lock(lock_);
      try {
        grant = lanes_.request(size, own, thread, may_wait);
      } catch (const std::bad_alloc&) {
        lanes_.pass_over(thread);
        return grant;
      }
      if (grant.waits) awaited = take_awaited(grant.id);
      if (grant.waits) waits_to_issue_.fetch_add(1, std::memory_order_relaxed);
    }
    if (grant.waits) wait_for_uses(awaited, grant.id, stream);
    if (is_shared_) await_issued();
    return grant;
  }
  // Serves a block by upstream; its memory is the client's. If the answer is an error, that has been noted, and the
  // error is the caller's to drop and the block to release.
  Answer ask_upstream(BlockId id, Bytes size, Reason reason, void* client);
  void release(BlockId id) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    lanes_.release(id);
  }

  // A free of a block that `streams` may still use; they, and its memory (0 for a block in an arena), are the pool's
  // now.
  void hold(BlockId id, const std::vector<Token>& streams, Token memory);
  // Lets go of the held blocks that no stream uses any more; returns how many. None, while the current stream is being
  // captured.
  std::size_t settle();
  Stream stream_of(BlockId id) {
    std::lock_guard<profiler::SpinLock> lock(lock_);
    return lanes_.stream_of(id);
  }

  // Makes a lane's arena at least this large; false where upstream has no memory for it.
  bool reserve(LaneNumber lane, Bytes size);
  // Gives back retired arenas in which nothing lives; returns how many.
  std::size_t drop_dead_arenas();
  // Gives back what is held, and every arena in which nothing lives; returns how many.
  std::size_t give_back();

  LockedLanes* lanes() { return &locked_; }

 private:
  static constexpr Bytes kUnit = 512;   // what CuPy's own pool rounds to, and what CUDA aligns to
  static constexpr Bytes kNearly = 64;  // a part of so many is a little

  struct Use {
    Kept stream;  // it must not go before an event is recorded on it
    Kept event;   // none: it could not be recorded yet
  };
  struct Held {
    std::vector<Use> uses;
    Kept memory;
    std::vector<std::shared_ptr<Held>> former;  // what was held in its place, and was not waited for
  };
  using HeldPtr = std::shared_ptr<Held>;

  struct ArenaMemory {
    Kept upstream;                          // or
    std::shared_ptr<VirtualArena> mapping;  // whose
    Bytes wanted = 0;                       // bytes, in all, were asked for
    LaneNumber lane = 0;
    bool shrinks = false;           // now: what has memory is said when that is over
    std::uint64_t grows_again = 0;  // from this step on
    std::uint64_t rest = 0;         // steps for which it did not grow the last time
  };
  struct Growing {
    std::shared_ptr<VirtualArena> mapping;
    LaneNumber lane;
    Bytes wanted;
  };

  bool look_for_held(Bytes size, Stream stream, ThreadId thread, bool& may_wait);
  void note_held() { any_held_.store(!held_.empty(), std::memory_order_relaxed); }
  std::vector<HeldPtr> take_awaited(BlockId granted);
  void wait_for_uses(const std::vector<HeldPtr>& awaited, BlockId granted, Stream stream);
  // Waits until no request has waits to issue. A held block leaves the arena as a whole, as soon as a request gets a
  // part of its place; the thread of that request then tells the stream to wait for the block's uses. Meanwhile another
  // thread of the same lane, and so of the same stream, may get the rest of the place.
  void await_issued() const {
    if (waits_to_issue_.load(std::memory_order_acquire) == 0) return;
    const Apart apart;  // the other thread wants it back
    while (waits_to_issue_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  }
  bool is_done(Held& held);
  void record_events(Held& held);
  bool make_idle() const;
  Token event_of(const Use& use);

  Bytes excess(BlockId id, Bytes size);
  Bytes room(bool within_limit);
  Bytes a_little();
  bool shelter(BlockId id, Reason reason, std::uintptr_t& address);
  bool replace_arena(LaneNumber lane, Bytes size);
  bool take_arena(LaneNumber lane, Bytes size);
  bool grow_in_place(LaneNumber lane, Bytes size);
  void grow_arenas(Bytes size);
  bool may_grow(LaneNumber lane);
  Bytes bytes_for(const VirtualArena& mapping, Bytes wanted, bool within_limit);
  int extend(VirtualArena& mapping, LaneNumber lane, Bytes begin, Bytes end, Bytes bytes);
  void note_memory(const VirtualArena& mapping, LaneNumber lane);
  Bytes shrink_arenas(Bytes enough);
  void restore_arenas(Bytes shrunk);
  std::size_t give_back_held();
  std::pair<Bytes, Bytes> place_of_next(LaneNumber lane, const VirtualArena& mapping, Bytes size);
  std::shared_ptr<VirtualArena> mapping_of(LaneNumber lane);
  std::vector<Growing> growing();
  void note_arenas(bool may_grow);
  Bytes mapped_bytes();
  Answer ask(Bytes size, bool sample, void* client) const;

  profiler::SpinLock lock_;
  Lanes lanes_;
  const bool is_shared_;                // threads may share a lane
  std::atomic<int> waits_to_issue_{0};  // by requests that have been given their place
  LockedLanes locked_{lock_, lanes_};
  Device device_;
  std::unordered_map<BlockId, HeldPtr> held_;
  std::atomic<bool> any_held_{false};
  std::unordered_map<std::uintptr_t, ArenaMemory> arenas_;  // by base
  std::vector<ArenaMemory> waiting_;                        // arenas that go when the device can be waited for
  VirtualMemory virtual_memory_;
  std::atomic<bool> has_growing_{false};  // an arena has less memory than was asked for
};

}  // namespace stowplan::allocator
