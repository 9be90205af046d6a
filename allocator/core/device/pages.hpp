// Small blocks of one stream, in pages that they share.
//
// CUDA serves requests of up to half a page (2 MiB) from pages that they share, and a page stays while one block of it
// lives. To hold free blocks for later requests is to hold their pages, and what is made in their places keeps them. So
// small blocks are cut from pages here, each from the first page that has room: what lives long gathers in the first
// pages, and the last ones go.
//
//     page    | block | hole | block | block |           |        holes: offset -> bytes
//
// O(pages that are not full, and holes of one) for a request, mostly much less; O(log holes) for a free. What finds no
// memory of the host's (std::bad_alloc) has changed nothing. Not synchronized.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "plan.hpp"

namespace stowplan::allocator {

class Page {
 public:
  Page(std::uintptr_t address, Bytes size, std::uint64_t number)
      : address(address), number(number), holes_{{0, size}}, largest_(size) {}

  const std::uintptr_t address;
  const std::uint64_t number;  // in the order in which pages came

  bool is_full() const { return holes_.empty(); }
  bool is_empty() const { return used_ == 0; }

  // The offset of so many bytes that were free; none where there is no room. Allocates nothing.
  std::optional<Bytes> take(Bytes size) {
    if (size > largest_) return std::nullopt;
    const auto fits = [size](const auto& hole) { return hole.second >= size; };
    const auto at = std::find_if(holes_.begin(), holes_.end(), fits);
    if (at == holes_.end()) {
      largest_ = 0;
      for (const auto& [begin, room] : holes_) largest_ = std::max(largest_, room);
      return std::nullopt;
    }
    const Bytes offset = at->first;
    auto hole = holes_.extract(at);
    hole.key() += size;
    hole.mapped() -= size;
    if (hole.mapped() > 0) holes_.insert(std::move(hole));
    used_ += size;
    return offset;
  }

  void give(Bytes offset, Bytes size) {
    const auto hole = holes_.emplace(offset, size).first;  // all that may fail
    used_ -= size;
    const auto next = std::next(hole);
    if (next != holes_.end() && next->first == offset + size) {
      hole->second += next->second;
      holes_.erase(next);
    }
    largest_ = std::max(largest_, hole->second);
    if (hole == holes_.begin()) return;
    const auto before = std::prev(hole);
    if (before->first + before->second != offset) return;
    before->second += hole->second;
    largest_ = std::max(largest_, before->second);
    holes_.erase(hole);
  }

 private:
  std::map<Bytes, Bytes> holes_;  // no two of them touch
  Bytes used_ = 0;
  Bytes largest_;  // no hole is larger
};

class Pages {
 public:
  // A page, and the offset of so many bytes in it that were free; null where no page has room. Allocates nothing.
  std::pair<Page*, Bytes> take(Bytes size) {
    for (auto at = open_.begin(); at != open_.end(); ++at) {
      Page& page = at->second;
      const auto offset = page.take(size);
      if (!offset) continue;
      if (page.is_full()) full_.insert(open_.extract(at));
      return {&page, *offset};
    }
    return {nullptr, 0};
  }
  void add(std::uintptr_t address, Bytes size) {
    open_.try_emplace(came_, address, size, came_);
    ++came_;
  }
  // Takes bytes back; true: nothing is left in the page, which is gone, and its memory is the caller's.
  bool give(Page* page, Bytes offset, Bytes size) {
    const bool was_full = page->is_full();
    page->give(offset, size);
    if (was_full) open_.insert(full_.extract(page->number));
    return page->is_empty() && open_.erase(page->number) > 0;
  }

 private:
  std::map<std::uint64_t, Page> open_, full_;  // a page goes from one to the other and stays where it is
  std::uint64_t came_ = 0;
};

}  // namespace stowplan::allocator
