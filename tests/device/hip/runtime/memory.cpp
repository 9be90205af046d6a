#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "faults.hpp"
#include "pages.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

constexpr std::size_t kMostGraves = 1 << 16;

std::uintptr_t number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
bool of_device(Kind kind) { return kind == Kind::device || kind == Kind::ordered; }

const char* maker_of(Kind kind) {
  switch (kind) {
    case Kind::device: return "hipMalloc";
    case Kind::ordered: return "hipMallocAsync";
    case Kind::managed: return "hipMallocManaged";
    case Kind::pinned: return "hipHostMalloc";
    default: return "hipMemMap";
  }
}

}  // namespace

Memory& memory() {
  static auto* m = new Memory;
  return *m;
}

Memory::Memory() {
  const std::size_t each = settings().address_space;
  const auto devices = static_cast<std::size_t>(settings().devices);
  size_ = each * (devices + 3);
  base_ = reserve_addresses(size_);
  for (std::size_t i = 0; i < devices + 3; ++i) spaces_.emplace_back(base_ + i * each, each);
  counts_.resize(devices);
  granules_.resize(devices);
  peers_.assign(devices, std::vector<char>(devices, 0));
  open_ = !settings().refuse_host;
  watch_for_bad_accesses();
}

AddressSpace& Memory::space_of(Kind kind, int device) {
  const std::size_t devices = counts_.size();
  switch (kind) {
    case Kind::managed: return spaces_[devices];
    case Kind::pinned: return spaces_[devices + 1];
    case Kind::mapped: return spaces_[devices + 2];
    default: return spaces_[static_cast<std::size_t>(device)];
  }
}

// ---------------------------------------------------------------------------------------------------------- counts

bool Memory::charge_locked(int device, std::size_t size) {
  Count& count = counts_[static_cast<std::size_t>(device)];
  if (size > settings().memory - count.used - count.context) return false;
  count.used += size;
  count.peak = std::max(count.peak, count.used);
  return true;
}

bool Memory::charge_block(Block& block) {
  if (block.kind == Kind::managed) counts_[static_cast<std::size_t>(block.device)].managed += block.counted;
  if (block.kind == Kind::pinned) pinned_ += block.counted;
  if (block.kind != Kind::device) return true;
  const std::size_t granule = settings().granularity;
  if (2 * block.size > granule) return charge_locked(block.device, block.counted = up(block.size, granule));
  auto& granules = granules_[static_cast<std::size_t>(block.device)];
  auto found = std::find_if(granules.begin(), granules.end(),
                            [&](std::size_t in_use) { return in_use + block.counted <= granule; });
  if (found == granules.end()) {
    if (!charge_locked(block.device, granule)) return false;
    found = granules.insert(granules.end(), 0);
  }
  *found += block.counted;
  block.granule = &*found;
  return true;
}

void Memory::discharge_block(const Block& block) {
  Count& count = counts_[static_cast<std::size_t>(block.device)];
  if (block.kind == Kind::managed) count.managed -= block.counted;
  if (block.kind == Kind::pinned) pinned_ -= block.counted;
  if (block.kind != Kind::device) return;
  if (block.granule == nullptr) {
    count.used -= block.counted;
  } else if ((*block.granule -= block.counted) == 0) {
    count.used -= settings().granularity;
    granules_[static_cast<std::size_t>(block.device)].remove(0);
  }
}

bool Memory::charge(int device, std::size_t size) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return charge_locked(device, size);
}

bool Memory::add_context(int device) {
  const std::lock_guard<std::mutex> guard(mutex_);
  Count& count = counts_[static_cast<std::size_t>(device)];
  if (settings().context > settings().memory - count.used) return false;
  count.context = settings().context;
  return true;
}

void Memory::discharge(int device, std::size_t size) {
  const std::lock_guard<std::mutex> guard(mutex_);
  counts_[static_cast<std::size_t>(device)].used -= size;
}

Count Memory::count(int device) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return counts_[static_cast<std::size_t>(device)];
}

std::size_t Memory::pinned() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return pinned_;
}

void Memory::reset_peak(int device) {
  const std::lock_guard<std::mutex> guard(mutex_);
  Count& count = counts_[static_cast<std::size_t>(device)];
  count.peak = count.used;
}

// ---------------------------------------------------------------------------------------------------------- blocks

hipError_t Memory::allocate(Kind kind, int device, std::size_t size, void** out, void* pool, std::uint64_t access) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (size > settings().address_space) return hipErrorOutOfMemory;
  AddressSpace& space = space_of(kind, device);
  const std::uintptr_t base = space.take(size);
  if (base == 0) return hipErrorOutOfMemory;
  const bool coming = kind == Kind::ordered;
  Block block{base, size, up(size, kUnit), kind, coming, false, device, ++numbers_, access, pool, nullptr};
  const bool charged = charge_block(block);
  if (!charged || !open_pages(base, up(size, kPage))) {
    if (charged) discharge_block(block);
    space.give(base);
    return hipErrorOutOfMemory;
  }
  if (of_device(kind) && !open_) mprotect(reinterpret_cast<void*>(base), up(size, kPage), PROT_NONE);
  blocks_.emplace(base, block);
  *out = reinterpret_cast<void*>(base);
  return hipSuccess;
}

std::optional<Block> Memory::begin_free(const void* base) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = blocks_.find(number_of(base));
  if (found == blocks_.end() || found->second.going) return {};
  if (found->second.kind == Kind::mapped) return {};
  found->second.going = true;
  return found->second;
}

void Memory::cancel_free(const void* base) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = blocks_.find(number_of(base));
  if (found != blocks_.end()) found->second.going = false;
}

void Memory::begin_life(const void* base) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = blocks_.find(number_of(base));
  if (found != blocks_.end()) found->second.coming = false;
}

void Memory::end_free(const void* base) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = blocks_.find(number_of(base));
  if (found == blocks_.end()) return;
  const Block block = found->second;
  blocks_.erase(found);
  discharge_block(block);
  close_pages(block.base, up(block.size, kPage));
  space_of(block.kind, block.device).give(block.base);
  bury(block, "freed");
}

void Memory::bury(const Block& block, const char* how) {
  graves_.insert_or_assign(block.base, Grave{block.size, text_of(block) + ", " + how});
  buried_.push_back(block.base);
  if (buried_.size() <= kMostGraves) return;
  graves_.erase(buried_.front());
  buried_.pop_front();
}

const Block* Memory::at(std::uintptr_t address) const {
  const auto behind = blocks_.upper_bound(address);
  if (behind == blocks_.begin()) return nullptr;
  const Block& block = std::prev(behind)->second;
  return address < block.base + block.size ? &block : nullptr;
}

std::optional<Block> Memory::find(const void* pointer) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const Block* block = is_ours(number_of(pointer)) ? at(number_of(pointer)) : nullptr;
  return block != nullptr ? std::optional<Block>(*block) : std::nullopt;
}

void Memory::open_all(bool open) {
  const std::lock_guard<std::mutex> guard(mutex_);
  open_ = open;
  for (const auto& [base, block] : blocks_) {
    if (!of_device(block.kind)) continue;
    mprotect(reinterpret_cast<void*>(base), up(block.size, kPage), open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

// ------------------------------------------------------------------------------------------------ reserved addresses

std::uintptr_t Memory::reserve(std::size_t size, std::size_t alignment) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return space_of(Kind::mapped, 0).take(size, alignment);
}

void Memory::unreserve(std::uintptr_t base) {
  const std::lock_guard<std::mutex> guard(mutex_);
  space_of(Kind::mapped, 0).give(base);
}

void Memory::add_mapping(std::uintptr_t base, std::size_t size, int device) {
  const std::lock_guard<std::mutex> guard(mutex_);
  blocks_.emplace(base, Block{base, size, size, Kind::mapped, false, false, device, ++numbers_, 0, nullptr, nullptr});
}

void Memory::set_access(std::uintptr_t base, int device, bool may) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end()) return;
  const std::uint64_t bit = std::uint64_t{1} << device;
  found->second.access = may ? found->second.access | bit : found->second.access & ~bit;
}

void Memory::set_pool_access(const void* pool, std::uint64_t access) {
  const std::lock_guard<std::mutex> guard(mutex_);
  for (auto& [base, block] : blocks_) {
    if (block.kind == Kind::ordered && block.pool == pool) block.access = access;
  }
}

void Memory::remove_mapping(std::uintptr_t base) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end()) return;
  bury(found->second, "unmapped");
  blocks_.erase(found);
}

// ----------------------------------------------------------------------------------------------------- what may be
// used

void Memory::set_peer(int device, int other, bool may) {
  const std::lock_guard<std::mutex> guard(mutex_);
  peers_[static_cast<std::size_t>(device)][static_cast<std::size_t>(other)] = may ? 1 : 0;
}

bool Memory::is_peer(int device, int other) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return peers_[static_cast<std::size_t>(device)][static_cast<std::size_t>(other)] != 0;
}

std::string Memory::text_of(const Block& block) const {
  std::string text = "allocation " + std::to_string(block.number) + " (" + std::to_string(block.size) + " bytes from " +
                     hex(block.base) + " by " + maker_of(block.kind);
  return text + (block.kind == Kind::pinned ? ")" : " on device " + std::to_string(block.device) + ")");
}

std::string Memory::describe_locked(std::uintptr_t address) const {
  if (!is_ours(address)) return "which is no memory of a device";
  if (const Block* block = at(address)) return "in " + text_of(*block);
  const auto behind = graves_.upper_bound(address);
  if (behind != graves_.begin()) {
    const auto& grave = *std::prev(behind);
    if (address < grave.first + grave.second.size) return "in " + grave.second.text;
  }
  const auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return "where nothing is allocated";
  return "where nothing is allocated; before it is " + text_of(std::prev(block)->second);
}

std::string Memory::describe(std::uintptr_t address) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return describe_locked(address);
}

std::string Memory::refusal_of(const Block& block, int device) const {
  if (block.coming) return "in " + text_of(block) + ", not allocated yet in the order of streams";
  if (block.kind == Kind::mapped) {
    const std::uint64_t wanted = device < 0 ? ~std::uint64_t{0} : std::uint64_t{1} << device;
    return (block.access & wanted) != 0 ? "" : "in " + text_of(block) + ", to which hipMemSetAccess gave no access";
  }
  if (device < 0 || device == block.device || !of_device(block.kind)) return "";
  if (block.kind == Kind::ordered) {
    if ((block.access >> device & 1) != 0) return "";
    return "in " + text_of(block) + ", to whose pool hipMemPoolSetAccess gave device " + std::to_string(device) +
           " no access";
  }
  if (peers_[static_cast<std::size_t>(device)][static_cast<std::size_t>(block.device)] != 0) return "";
  return "in " + text_of(block) + ", to which device " + std::to_string(device) + " has no peer access";
}

std::string Memory::refusal(std::uintptr_t address, std::size_t size, int device) {
  if (!is_ours(address)) return "";
  const std::lock_guard<std::mutex> guard(mutex_);
  const Block* block = at(address);
  if (block == nullptr && size == 0) block = at(address - 1);  // the end of an array
  std::uintptr_t next = address;
  for (; block != nullptr; block = at(next)) {
    std::string why = refusal_of(*block, device);
    next = block->base + block->size;
    if (!why.empty() || address + size <= next) return why;
  }
  return (next == address ? "" : "past its end at " + hex(next) + ", ") + describe_locked(next);
}

}  // namespace simhip
