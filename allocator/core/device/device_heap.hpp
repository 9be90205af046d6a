// What no plan serves on one device: a heap over virtual memory, which keeps addresses and memory apart; and the
// account of all that the pool holds.
//
//     addresses   |##a##|..over..|~~A~~|      |##b##|~~B~~|..over..|        ...   # a block; . anybody's; ~ pending on
//     handles     [  12 MiB  ][ 2 ][ 4 ]      [    16 MiB    ][ 2 ]               a stream; blank: no memory
//
// What a stream has freed is its own at once, and anybody's when all streams have done what they were given before the
// free, as another one may have read it. (In CuPy's own pool memory leaves a stream by `cudaFree` alone, which waits
// for the device.) A request takes
//
//  1. the smallest of its stream's holes, or of those that are anybody's, that has room; or such that touch;
//  2. the same, once the events that are due have been asked;
//  3. the place that lacks the fewest bytes of memory, which it gets: new memory up to the account, else handles out of
//     holes that are anybody's, the smallest holes first;
//  4. another stream's hole, for which its own waits on the device, where its own holes together would not do;
//  5. new memory up to the bound, and nobody waits;
//  6. else the host waits for one event after the other, and asks again.
//
// The account is 1.05 of the larger of two figures: the most bytes live, arenas included; and the sum of what the
// streams have had live at most that had something live or pending at one time, which keeps streams apart that overlap.
// Both are those of the last periods: steps, or so many requests that found no hole. Where much moves, the 5 % double,
// up to 20. The bound is 1.20. A handle moves, or goes back, as a whole, and only when no stream uses any of it.
//
// Without virtual memory a handle is what `cuMemAlloc` gave: it is split and joined, does not move, and goes back when
// memory has run out.
//
// Small blocks share pages, by stream (pages.hpp). O(log holes) for a request that a hole serves, O(holes^2) at worst
// for one that finds none. Any thread, at any time; to give is no call of the driver's. One thread at a time calls the
// driver, and never under the lock. If the host has no memory to note something, nothing has changed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "apart.hpp"
#include "cuda_api.hpp"
#include "holes.hpp"
#include "invariants.hpp"
#include "pages.hpp"
#include "plan.hpp"
#include "virtual_memory.hpp"

namespace stowplan::allocator {

class DeviceHeap {
 public:
  static constexpr Bytes kUnit = 512;                // what CuPy's own pool rounds to, and what CUDA aligns to
  static constexpr Bytes kPage = Bytes{2} << 20;     // what CUDA's driver counts memory in, and what small blocks share
  static constexpr Bytes kEndless = Bytes{1} << 60;  // no limit, in sums that must not overflow
  // Whose blocks several streams use: all use of them is over when they are given. They are never pending.
  static constexpr Stream kShared = INT64_MIN;

  struct Place {
    std::uintptr_t address = 0;
    Bytes size = 0;  // in whole units, or pages
    Bytes used = 0;  // in whole units; 0: of a page for small blocks
    Holes::State stream = 0;
    Page* page = nullptr;  // null: a range of its own
  };

  // Knows the streams. It is called without the lock.
  class Owner {
   public:
    // Has events, made where there are too few, stand behind all that the streams have been given; `used`: how many.
    virtual CudaError mark(std::vector<CudaEvent>& events, std::size_t& used) = 0;
    // Has a stream wait for one of them; an error: it has left, or is another thread's.
    virtual CudaError order(Stream stream, CudaEvent event) = 0;
    // Whether the work of streams that have left is over (kCudaSuccess); or waits for it.
    virtual CudaError end_left(bool waits) = 0;
    // Waits for the work of all streams, and of those that have left; fails while one of them is being captured.
    virtual CudaError synchronize() = 0;
    // Whether one of them is being captured: then nothing that waits for the device may be called.
    virtual bool is_capturing() = 0;

   protected:
    ~Owner() = default;
  };

  DeviceHeap(const CudaApi& api, int device, Owner& owner) : api_(api), device_(device), owner_(owner) {}
  ~DeviceHeap();  // asks the owner

  // Once, before all else.
  void use(const VirtualMemory& memory);
  void set_page(Bytes page) { page_ = page; }
  Bytes page() const { return page_; }
  bool is_virtual() const { return memory_.reach != 0; }
  void set_limit(Bytes limit) { limit_ = limit; }
  Bytes limit() const { return limit_; }

  // kCudaOutOfMemory: neither the device nor the limit has room for it.
  CudaError take(Bytes size, Stream stream, Place& place);
  // Its stream may still use it; no other.
  void give(const Place& place) noexcept;
  // The program has dropped a stream: its handle may be another one's from now on. `last`: behind its work, or null.
  void leave(Stream stream, CudaEvent last);
  // Waits, and gives all that is free back to the device.
  void trim();
  // Gives back what is anybody's beyond the account.
  void make_room();

  // The bytes by which blocks and arenas (heap_arena.hpp) may grow now, so that no more is live here than has been live
  // at a time; less than 0 where it is more. `within_limit`: so many as the limit allows. `live_peak`: the most bytes
  // that the program has had live, wherever they lie.
  Bytes room(bool within_limit, Bytes live_peak);
  // What the program's streams have had live at most, added up, with a block that is asked for: the heap keeps no more
  // for streams that overlap.
  void note_apart(Bytes bytes) { apart_ = bytes; }
  // Whether a hole has room for a stream's request.
  bool has_hole(Bytes size, Stream stream);
  void begin_step();

  Bytes held() {
    return locked(mutex_, [&] { return held_; });
  }
  Bytes peak() {
    return locked(mutex_, [&] { return peak_; });
  }
  void reset_peak() {
    locked(mutex_, [&] { peak_ = held_; });
  }
  std::size_t free_ranges();

 private:
  friend class HeapArena;
  using Lock = std::lock_guard<std::mutex>;
  using State = Holes::State;
  using Part = Holes::Part;
  static constexpr std::size_t kPeriods = 8;                    // that count
  static constexpr std::uint64_t kSlow = 256;                   // requests of a period without steps
  static constexpr Bytes kMost = Bytes{64} << 20, kShare = 48;  // a handle has so many bytes at most, such a share
  static constexpr Bytes kLittle = 25;                          // a part of so many may be lost
  static constexpr double kAccount = 0.05, kBound = 0.20, kMuch = 0.02;

  static constexpr CudaError kFull = -1, kNotOrdered = -2, kNoHostMemory = -3;  // beside CUDA's own

  // A stream, and what it has had of the heap.
  struct User {
    Stream stream = 0;
    Pages pages;
    Bytes live = 0;  // arenas included
    Bytes arenas = 0;
    // Live at a time, and blocks alone: in the last periods, and those before.
    Bytes most = 0, most_before = 0, most_blocks = 0, most_blocks_before = 0;
    int asking = 0;  // requests that wait for memory, and arenas
    bool has_left = false;
  };
  struct Handle {
    Bytes size;
    MemoryHandle memory;
  };
  using Handles = std::map<Bytes, Handle>;  // by address
  // What is out of the heap while the driver is called.
  struct Growth {
    Bytes begin = 0, end = 0;  // the block's
    Bytes most = 0;            // live, which says how large new handles are
    bool for_arena = false;
    std::vector<Part> parts;  // of it, what has memory
    std::vector<Part> gaps;   // and what has none, in whole pages; each is what it was again if it gets no memory
    std::vector<Handles::node_type> moving;
    std::vector<Part> emptied;  // where they come from
    Handles placed;
    Bytes more = 0;  // that the heap holds, when all is done
    bool is_unmapped = false;
    std::size_t promised = 0;
  };
  struct Effort {
    bool orders = true;      // one stream may wait for another
    bool moves_all = false;  // no new memory while old may move
    bool exceeds = false;    // the bound: nothing is pending that could be waited for
    bool in_account = false;
  };
  struct Lack {
    Bytes bytes = kEndless, begin = 0;
  };
  struct Period {
    Bytes live = 0, apart = 0, moved = 0;
    bool is_asked = false;  // for blocks
  };
  // One thread at a time calls the driver, for this device, until the end of the scope.
  struct Driving {
    explicit Driving(DeviceHeap& heap) : changing(heap.changing_), on(heap.api_, heap.device_), allows(heap.api_) {}
    const Apart apart;
    const Lock changing;
    const OnDevice on;
    const WhileCapturing allows;
  };

  Bytes up(Bytes size) const { return (size + page_ - 1) / page_ * page_; }
  Bytes down(Bytes size) const { return size / page_ * page_; }
  // Whole pages begin with a page.
  Bytes aligned(Bytes at, Bytes size) const { return is_virtual() && size % page_ == 0 ? up(at) : at; }
  Holes::Iterator smallest(State state, Bytes size) const;
  CudaError take_in_page(Place& place, Stream stream);
  CudaError take_range(Place& place, Stream stream);
  CudaError extend(Place& place);
  CudaError grow(Place& place, const Effort& effort);
  bool tries_more(Effort& effort, CudaError error, Bytes size);
  bool reserve_addresses();
  CudaError carry_out(Growth& growth, State user, bool moves_all);
  CudaError follow(const Growth& growth, State user);
  CudaError fill(Growth& growth, bool moves_all);
  void begin_period();
  void unmap(const Handles::node_type& handle) const;
  CudaError fill_gap(Growth& growth, const Part& gap, bool moves_all);
  CudaError take_handle(Growth& growth, Bytes most, bool moves_all, Handles::node_type& handle);
  CudaError allocate(Growth& growth);
  bool mark();
  bool end_mark(bool waits);
  void end_uses(std::uint64_t number);
  void settle();
  void retry_mark();
  bool await_one();
  Bytes release(Bytes bytes, bool or_more);
  void drop(Bytes address, const Handle& handle) const;
  // Under the lock:
  State user_of(Stream stream);
  bool take_hole(Place& place);
  bool cut_from_page(Place& place, User& user);
  void put_back(Bytes begin, Bytes size, State state) noexcept;
  Bytes in_pages(Bytes size) const;
  void note(const Place& place);
  void count(State state, Bytes bytes);
  void count_arena(State state, Bytes bytes) {
    users_.at(state).arenas += bytes;
    arenas_ += bytes;
  }
  void note_most();
  bool exceeds_limit(Bytes asked) const { return limit_ != 0 && used_ + asked > limit_; }
  Bytes figure(State asking, Bytes asked);
  Bytes allowed(Bytes figure, double share) const;
  Bytes most_held() const;
  Bytes most_kept();
  CudaError design(Growth& growth, const Place& place, const Effort& effort);
  CudaError provide(Growth& growth, Bytes most, Bytes lacks, Bytes rest, const Effort& effort);
  void cut(Growth& growth, const std::vector<Bytes>& handles);
  void take_promises(Growth& growth, std::size_t count);
  void take_handles(Growth& growth, const std::vector<Bytes>& handles) noexcept;
  void publish(Growth& growth, bool is_done) noexcept;
  template <class IsFit>
  Lack lacking(Bytes size, IsFit&& is_fit) const;
  Lack lacking_of(State user, Bytes size) const;
  Bytes whole_handles(State user, Bytes begin, Bytes end) const;
  std::vector<Bytes> idle_handles(Bytes bytes, bool or_more, Bytes begin, Bytes end, Bytes& found) const;

  const CudaApi& api_;
  const int device_;
  Owner& owner_;
  VirtualMemory memory_;
  Bytes page_ = kPage;
  std::atomic<Bytes> limit_{0}, apart_{kEndless};
  std::atomic<bool> has_steps_{false};   // plans will want memory: blocks take whole pages, which can move
  std::atomic<bool> wants_mark_{false};  // a capture allowed none

  std::mutex changing_;  // held while the driver is called; before `mutex_`
  Bytes base_ = 0;       // of the addresses that are reserved; 0: none yet
  // The mark that is under way: its events, of those there are, and the frees that it stands for; 0: there is none.
  std::vector<CudaEvent> events_;
  std::size_t used_events_ = 0;
  std::uint64_t marked_ = 0;

  std::mutex mutex_;
  std::uint64_t slow_ = 0;   // requests of this period that found no hole
  std::uint64_t freed_ = 0;  // numbers frees
  Holes holes_;
  Handles handles_;
  std::map<State, User> users_;
  std::map<Stream, State> by_stream_;
  std::set<Bytes> arena_bases_;
  State next_user_ = Holes::kOver + 1;
  Bytes held_ = 0;             // of all handles
  Bytes live_ = 0, used_ = 0;  // of blocks and arenas, small ones by their pages; without what pages have free
  Bytes arenas_ = 0;           // of live bytes, those of arenas
  Bytes rounding_ = 0;         // of live bytes, what blocks have to be whole pages
  Bytes top_ = 0, lost_ = 0;   // the most that was used at a time, and what no block had then
  Bytes peak_ = 0;             // of all that was held
  double slack_ = kAccount;
  std::array<Period, kPeriods> periods_{};
  std::size_t period_ = 0;  // the one that is now
};

}  // namespace stowplan::allocator
