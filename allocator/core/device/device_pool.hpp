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
// Memory is asked for (cuda_memory.hpp) after a settle(); if there is none, once more if anything could be given back;
// then the arena takes the block in, wherever there is room. That of an arena, or of a held block, is guarded: if it
// must go while streams may use it, they are waited for.
//
// While a stream is being captured none is waited for, and what would have to wait is put off.
//
// The device never has more in use than has been live at a time, and a little. Where it would have, for a block that an
// arena has no place for, arenas in a heap (heap_arena.hpp) *shrink* first: what nothing lives in is the heap's. It
// comes again when there is room.
//
// Memory is reserved once. An arena in a heap takes all that it lacks. Where there is no room for that
// (DeviceHeap::room), the arena takes what requests need, while blocks from before it are freed. Best fit places
// the blocks with the longest lifetimes at the bottom; as long as these still live elsewhere, the bottom has no memory.
// Without virtual memory, upstream first frees what it has cached, then the pool frees an arena without live blocks,
// and then upstream allocates the larger one.
//
// Any thread, at any time; finalizers, too. The lock guards lanes, held blocks and arenas. The device, which may let
// other threads run, and the program's own allocator, which may run finalizers, are never called under it, and nothing
// of theirs is dropped under it: so a call finds all in order, and what was looked at before must be looked at again.
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
#include "cuda_memory.hpp"
#include "heap_arena.hpp"
#include "locked_lanes.hpp"
#include "thread_stream.hpp"

namespace stowplan::allocator {

class DevicePool {
 public:
  DevicePool(CudaMemory& memory, Scope scope)
      : memory_(memory), lanes_(kUnit, scope), is_shared_(scope == Scope::process) {}

  // Once, before the first arena: they come from this heap, if it has virtual memory. It serves the pool's requests,
  // too.
  void use(DeviceHeap& heap) { heap_ = heap.is_virtual() ? &heap : nullptr; }
  bool has_virtual_memory() const { return heap_ != nullptr; }
  // Drops what it holds, and its arenas; nothing but the destructor comes after it.
  void close();

  // Address 0: the device's turn, see ask_device(). No block: there was no memory to note it, and what the device has
  // for it is none of the pool's.
  Grant request(Bytes size, Stream stream) {
    if (has_growing_.load(std::memory_order_relaxed)) grow_arenas(size);
    const ThreadId thread = current_thread();
    const Stream own = stream == kPerThread ? ThreadStream::own() : stream;
    Grant grant;
    std::vector<HeldPtr> awaited;
    try {
      const bool may_wait = any_held_.load(std::memory_order_relaxed) && may_wait_for_held(size, own, thread);
      std::lock_guard<SpinLock> lock(lock_);
      grant = lanes_.request(size, own, thread, may_wait);
      if (grant.waits) awaited = take_awaited(grant.id);
      if (grant.waits) waits_to_issue_.fetch_add(1, std::memory_order_relaxed);
    } catch (const std::bad_alloc&) {
      locked(lock_, [&] { lanes_.pass_over(thread); });
      return {};
    }
    if (grant.waits) wait_for_uses(awaited, grant.id, stream);
    if (is_shared_) await_issued();
    return grant;
  }
  // Serves a block by the device's memory, which is the caller's (null: the arena has it); returns its address. 0:
  // there is none, `error` says why, it has been noted, and the block is the caller's to release.
  std::uintptr_t ask_device(const Grant& grant, Wanted wanted, CudaBlock*& memory, CudaError& error);
  void release(BlockId id) {
    locked(lock_, [&] { lanes_.release(id); });
  }

  // A free of a block that `streams` may still use; its memory (null for a block in an arena) is the pool's now. Unless
  // `may_record`, their events are recorded later.
  void hold(BlockId id, const std::vector<Stream>& streams, CudaBlock* memory, bool may_record);
  // Lets go of the held blocks that no stream uses any more; returns how many. None, while the current stream is being
  // captured.
  std::size_t settle();
  Stream stream_of(BlockId id) {
    return locked(lock_, [&] { return lanes_.stream_of(id); });
  }

  // Makes a lane's arena at least this large; false where upstream has no memory for it.
  bool reserve(LaneNumber lane, Bytes size);
  // Arenas serve the streams of their lanes, where these may have passed to others. What is taken before this returns,
  // and pending on a former stream, is over once the device has been waited for.
  void note_users();
  // Gives back retired arenas in which nothing lives; returns how many.
  std::size_t drop_dead_arenas();
  // Gives back what is held, and every arena in which nothing lives; returns how many.
  std::size_t give_back();

  LockedLanes* lanes() { return &locked_; }

 private:
  static constexpr Bytes kUnit = 512;   // what CuPy's own pool rounds to, and what CUDA aligns to
  static constexpr Bytes kNearly = 64;  // a part of so many is a little

  struct Use {
    Stream stream;
    OwnEvent event;  // none: it could not be recorded yet
  };
  struct Held {
    std::vector<Use> uses;
    OwnBlock memory;
    std::vector<std::shared_ptr<Held>> former;  // what was held in its place, and was not waited for
  };
  using HeldPtr = std::shared_ptr<Held>;

  struct ArenaMemory {
    OwnBlock block;                      // or
    std::shared_ptr<HeapArena> of_heap;  // whose
    Bytes wanted = 0;                    // bytes, in all, were asked for
    LaneNumber lane = 0;
    bool shrinks = false;  // now: what has memory is said when that is over
  };
  struct Growing {
    std::shared_ptr<HeapArena> arena;
    LaneNumber lane;
    Bytes wanted;
  };

  // Whether a request's stream may be told to wait for what is in its way. The device is asked only where something is.
  bool may_wait_for_held(Bytes size, Stream stream, ThreadId thread) {
    return locked(lock_, [&] { return lanes_.is_in_the_way(size, stream, thread); }) && !memory_.is_capturing();
  }
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
  CudaEvent event_of(const Use& use);

  Bytes excess(BlockId id, Bytes size);
  Bytes room(bool within_limit);
  void note_departures();
  Bytes spare(bool within_limit);
  Bytes a_little();
  bool serve_from_holes(BlockId id, Reason reason, std::uintptr_t& address);
  bool replace_arena(LaneNumber lane, Bytes size);
  bool take_arena(LaneNumber lane, Bytes size);
  bool grow_in_place(LaneNumber lane, Bytes size);
  void grow_arenas(Bytes size);
  bool may_grow(LaneNumber lane);
  Bytes bytes_for(const HeapArena& arena, Bytes wanted, bool within_limit);
  CudaError extend(HeapArena& arena, LaneNumber lane, Bytes begin, Bytes end, Bytes bytes, bool in_account);
  void note_memory(HeapArena& arena, LaneNumber lane);
  Bytes shrink_arenas(Bytes enough, BlockId unplanned);
  void give_idle(HeapArena& arena, LaneNumber lane);
  void give(HeapArena& arena, LaneNumber lane, const std::vector<Range>& idle);
  std::size_t give_back_held();
  std::shared_ptr<HeapArena> arena_of(LaneNumber lane);
  std::shared_ptr<HeapArena> place_arena(LaneNumber lane, Bytes size);
  std::vector<Growing> growing();

  CudaMemory& memory_;
  SpinLock lock_;
  Lanes lanes_;
  const bool is_shared_;                // threads may share a lane
  std::atomic<int> waits_to_issue_{0};  // by requests that have been given their place
  LockedLanes locked_{lock_, lanes_};
  std::unordered_map<BlockId, HeldPtr> held_;
  std::atomic<bool> any_held_{false};
  std::atomic<std::uint64_t> departures_{0};                // of streams, when it was last seen which of them count
  std::unordered_map<std::uintptr_t, ArenaMemory> arenas_;  // by base
  DeviceHeap* heap_ = nullptr;                              // that arenas come from
  std::atomic<bool> has_growing_{false};                    // an arena has less memory than was asked for
};

}  // namespace stowplan::allocator
