// Which live block starts at an address: open addressing with linear probing, deletion by shifting back (no
// tombstones, so the table does not age). O(1) expected; allocates only when it grows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "block_table.hpp"

namespace stowplan {

class AddressMap {
 public:
  AddressMap() : cells_(kInitialCells) {}

  // Makes room for so many more addresses.
  void reserve(std::size_t more) {
    while (2 * (count_ + more) > cells_.size()) grow();
  }

  // Precondition: the address is not 0 and not in the map.
  void insert(std::uintptr_t address, BlockId id) {
    reserve(1);
    place(address, id);
    ++count_;
  }

  BlockId find(std::uintptr_t address) const {
    for (std::size_t i = home(address); cells_[i].address != 0; i = next(i)) {
      if (cells_[i].address == address) return cells_[i].id;
    }
    return kNoBlock;
  }

  // Removes the address and returns its block, or kNoBlock where it is unknown.
  BlockId take(std::uintptr_t address) {
    std::size_t i = home(address);
    while (cells_[i].address != address) {
      if (cells_[i].address == 0) return kNoBlock;
      i = next(i);
    }
    const BlockId id = cells_[i].id;
    // Shift back every later cell of the run that may stand here.
    for (std::size_t j = next(i); cells_[j].address != 0; j = next(j)) {
      const std::size_t wanted = home(cells_[j].address);
      const bool stays = i <= j ? (i < wanted && wanted <= j) : (i < wanted || wanted <= j);
      if (stays) continue;
      cells_[i] = cells_[j];
      i = j;
    }
    cells_[i] = Cell{};
    --count_;
    return id;
  }

  std::size_t size() const { return count_; }

 private:
  static constexpr std::size_t kInitialCells = 1024;
  struct Cell {
    std::uintptr_t address = 0;
    BlockId id = kNoBlock;
  };

  std::size_t mask() const { return cells_.size() - 1; }
  std::size_t next(std::size_t i) const { return (i + 1) & mask(); }
  std::size_t home(std::uintptr_t address) const {
    // Fibonacci hashing: the low bits of addresses are zeros, the product's high half is well mixed.
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15u) >> 32) & mask();
  }

  void place(std::uintptr_t address, BlockId id) {
    std::size_t i = home(address);
    while (cells_[i].address != 0) i = next(i);
    cells_[i] = {address, id};
  }

  void grow() {
    std::vector<Cell> old(2 * cells_.size());
    std::swap(old, cells_);
    for (const Cell& cell : old) {
      if (cell.address != 0) place(cell.address, cell.id);
    }
  }

  std::vector<Cell> cells_;
  std::size_t count_ = 0;
};

}  // namespace stowplan
