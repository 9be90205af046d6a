// What a pool takes from one device beside arenas in virtual memory, and the account of all that it holds:
//
//     held  =  live segments  +  free segments  +  arenas  <=  the most bytes that were live at a time
//
// in this step and the last one, or since the program began where it marks no steps. "Live" counts an arena as a whole.
// A caching pool holds at least as much: it gives nothing back by itself.
//
// Each block is a segment of its own, of whole pages, which the device gives whole and gets back whole. So a parameter
// never holds part of a former workspace, and with it all of the workspace's memory. Blocks of up to half a page share
// segments of a page (pages.hpp). A free segment waits for a request of its size on its stream, as long as the account
// allows; the one that has waited longest goes first.
//
// A program that goes on asking for other sizes pays a call of the driver for each: after a second's worth of them,
// `is_worn()`, its caller may serve what is not planned by an allocator that splits what it has (`note_beside`).
//
// O(log segments) for a request that a free one serves; else a call of the driver. Any thread, at any time. The driver
// is never called under the lock, and neither is `may_free`. If the host has no memory to note a segment, the pool does
// not take that segment, or gives it back to the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "cuda_api.hpp"
#include "pages.hpp"
#include "plan.hpp"

namespace stowplan::allocator {

class Segments {
 public:
  static constexpr Bytes kUnit = 512;                // what CuPy's own pool rounds to, and what CUDA aligns to
  static constexpr Bytes kPage = Bytes{2} << 20;     // what CUDA's driver counts memory in, and what small blocks share
  static constexpr Bytes kEndless = Bytes{1} << 60;  // no limit, in sums that must not overflow
  static constexpr std::uint64_t kPatience = 10'000;  // segments from the driver: a second's worth, at 0.1 ms each

  struct Place {
    std::uintptr_t address = 0;
    Bytes size = 0;  // in whole units
    Stream stream = 0;
    Page* page = nullptr;  // null: a segment of its own
  };

  // `may_free(owner)`: whether memory may go back to the device now. Segments that streams still use wait for them as
  // the driver's free does, or in this call.
  Segments(const CudaApi& api, int device, bool (*may_free)(void* owner), void* owner)
      : api_(api), device_(device), may_free_(may_free), owner_(owner) {}
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  // Once, before all else.
  void set_page(Bytes page) { page_ = page; }
  Bytes page() const { return page_; }
  void set_limit(Bytes limit) { limit_ = limit; }
  Bytes limit() const { return limit_; }

  // kCudaOutOfMemory: neither the device nor the limit has room for it; there may be after a trim().
  CudaError take(Bytes size, Stream stream, Place& place);
  // Its stream may still use it; no other.
  void give(const Place& place) noexcept;
  // Whether `asked` bytes more keep to the limit when what is free has gone back; it does not count what no block has.
  bool keep_limit(Bytes asked);
  // Gives all free segments back to the device.
  void trim() { release(0); }
  // Gives back what is held beyond what has been live at a time.
  void make_room();

  // The bytes that all arenas may take now, so that no more is held than has been live at a time; `within_limit`: so
  // many as the limit allows. `live_peak`: the most bytes that the program has had live, wherever they lie.
  Bytes room(bool within_limit, Bytes live_peak);
  void note_arenas(Bytes size);
  // What another allocator serves beside: the bytes that it holds, and those in use.
  void note_beside(Bytes held, Bytes used);
  void begin_step();

  Bytes held();
  Bytes peak();
  void reset_peak();
  std::size_t free_segments();
  bool is_worn() const { return taken_ >= patience; }
  std::uint64_t patience = kPatience;

  // What of held segments no block has: in shared pages, and behind blocks of their own pages.
  Bytes unused();

 private:
  using Lock = std::lock_guard<std::mutex>;
  using Key = std::pair<Stream, Bytes>;
  struct Free {
    Key key;
    std::uintptr_t address;
    std::uint64_t number;  // in the order in which they became free
  };

  Bytes in_pages(Bytes size) const { return (size + page_ - 1) / page_ * page_; }
  CudaError take_in_page(Place& place);
  CudaError segment(Key key, Bytes asked, std::uintptr_t& address);
  CudaError ask_device(Bytes size, std::uintptr_t& address) const;
  void drop(Key key, std::uintptr_t address);
  void release(Bytes keep);
  bool may_free() const;
  void free_device(std::uintptr_t address) const;
  // Under the lock:
  bool cut(Place& place);
  bool add_page(Place& place, std::uintptr_t address);
  bool reuse(Key key, std::uintptr_t& address);
  bool keep(Key key, std::uintptr_t address);
  void note(Bytes size);
  void note_most();
  Bytes sum() const { return live_ + kept_ + leaving_ + arenas_ + claimed_ + beside_held_; }
  // By how many bytes `asked` more exceed the limit.
  Bytes over(Bytes asked) const { return sum() - holes_ - ends_ - claimed_ends_ + asked - limit_; }
  bool fits(Bytes asked) const { return limit_ == 0 || over(asked) <= 0; }

  const CudaApi& api_;
  const int device_;
  bool (*const may_free_)(void* owner);
  void* const owner_;
  Bytes page_ = kPage;
  std::atomic<Bytes> limit_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::mutex mutex_;
  std::map<Stream, Pages> pages_;
  std::list<Free> free_;                                       // the longest free first
  std::multimap<Key, std::list<Free>::iterator> free_by_key_;  // of one key, in the same order
  std::uint64_t came_ = 0;                                     // the next one's number
  Bytes live_ = 0, kept_ = 0, arenas_ = 0;                     // bytes: of live and of free segments, and of arenas
  Bytes claimed_ = 0, claimed_ends_ = 0;                       // of segments being allocated, and their unused ends
  Bytes leaving_ = 0;                                          // of segments that are going back
  Bytes holes_ = 0, ends_ = 0;                                 // of live segments that belong to no block: see unused()
  Bytes most_ = 0, most_before_ = 0;                           // live at a time: in this step, and in the one before it
  Bytes top_ = 0, lost_ = 0;  // the most of blocks and arenas at a time, and what no block had then
  Bytes peak_ = 0;            // the peak of sum()
  Bytes beside_held_ = 0, beside_used_ = 0;
};

}  // namespace stowplan::allocator
