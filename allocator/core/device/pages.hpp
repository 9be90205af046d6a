// Small blocks of one stream, in pages that they share.
//
// CUDA serves requests of up to half a page (2 MiB) from pages that they share, and a page stays while one block of it
// lives. To hold free blocks for later requests is to hold their pages, and what is made in their places keeps them. So
// small blocks are cut from pages here, each from the first page that has room: what lives long gathers in the first
// pages, and the last ones go.
//
//     page    | block | hole | block | block |           |        holes: offset -> bytes
//
// A tree over the pages has the largest hole below each of its nodes. O(log pages + holes of one page) for a request,
// O(log pages + log holes) for a free. What finds no memory of the host's (std::bad_alloc) has changed nothing. Not
// synchronized.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plan.hpp"

namespace stowplan::allocator {

class Page {
 public:
  Page(std::uintptr_t address, Bytes size) : address(address), holes_{{0, size}}, largest_(size) {}

  const std::uintptr_t address;
  std::size_t number = 0;  // in the order in which pages came

  Bytes largest() const { return largest_; }
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
    if (holes_.empty()) largest_ = 0;
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
    while (largest_[1] >= size) {
      std::size_t at = 1;
      while (at < most()) at = 2 * at + (largest_[2 * at] >= size ? 0 : 1);
      Page& page = *pages_[at - most()];
      const auto offset = page.take(size);
      note(page.number, page.largest());
      if (offset) return {&page, *offset};
    }
    return {nullptr, 0};
  }
  void add(std::uintptr_t address, Bytes size) {
    auto page = std::make_unique<Page>(address, size);
    if (pages_.size() == most()) renumber();
    pages_.reserve(most());  // all that may fail
    page->number = pages_.size();
    note(page->number, size);
    pages_.push_back(std::move(page));
  }
  // Takes bytes back; true: nothing is left in the page, which is gone, and its memory is the caller's.
  bool give(Page* page, Bytes offset, Bytes size) {
    page->give(offset, size);
    note(page->number, page->is_empty() ? 0 : page->largest());
    if (!page->is_empty()) return false;
    pages_[page->number].reset();
    return true;
  }

 private:
  std::size_t most() const { return largest_.size() / 2; }  // pages that there are numbers for
  void note(std::size_t number, Bytes largest) {
    std::size_t at = most() + number;
    largest_[at] = largest;
    while ((at /= 2) > 0) largest_[at] = std::max(largest_[2 * at], largest_[2 * at + 1]);
  }
  // Leaves out the numbers of pages that have gone.
  void renumber() {
    std::size_t most = 1;
    for (const auto& page : pages_) most += page != nullptr ? 1 : 0;
    while ((most & (most - 1)) != 0) ++most;
    std::vector<std::unique_ptr<Page>> pages;
    pages.reserve(2 * most);
    std::vector<Bytes> largest(4 * most, 0);
    largest_.swap(largest);
    for (auto& page : pages_) {
      if (page == nullptr) continue;
      page->number = pages.size();
      note(page->number, page->largest());
      pages.push_back(std::move(page));
    }
    pages_.swap(pages);
  }

  std::vector<std::unique_ptr<Page>> pages_;  // by number; null: gone
  std::vector<Bytes> largest_ = {0, 0};       // holes of a node's pages; of node n, 2n and 2n + 1 are below
};

}  // namespace stowplan::allocator
