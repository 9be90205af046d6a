// PyTorch's allocator of CPU tensors over five C functions; profiler/torch_library.py compiles and loads it.
//
// It wants c10's headers and C++20, as PyTorch does, none of ours, and links libc10 alone. The five functions stand in
// a struct whose address is fixed for ever, one in a process; a block's deleter asks the same struct, so that blocks
// may be freed at any time, on any thread, with or without the allocator in place. The library is never unloaded.
//
// A storage keeps the allocator that made it, and grows by it: the five functions are called after uninstalling, too.
// What PyTorch's own allocator tells its profiler, and does for its options that fill new memory, this one does, too.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/Flags.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

C10_DECLARE_bool(caffe2_cpu_allocator_do_zero_fill);
C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

#define STOWPLAN_API extern "C" __attribute__((visibility("default")))

namespace {

// The Upstream of common/core/host_memory.hpp. malloc and calloc answer with a multiple of c10::gAlignment, or null.
struct Table {
  void* ctx;
  void* (*malloc)(void* ctx, std::size_t size);
  void* (*calloc)(void* ctx, std::size_t count, std::size_t item_size);
  void* (*realloc)(void* ctx, void* ptr, std::size_t new_size);
  void (*free)(void* ctx, void* ptr, std::size_t size);
};

constexpr int kJunk = 0x7f;

const Table* table = nullptr;
c10::Allocator* former = nullptr;  // what was in place before

void free_block(void* ptr) {
  if (ptr == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(ptr);
  table->free(table->ctx, ptr, SIZE_MAX);  // the size is not known
}

struct TableAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (size == 0) return {nullptr, nullptr, &free_block, cpu};
    void* ptr =
        FLAGS_caffe2_cpu_allocator_do_zero_fill ? table->calloc(table->ctx, 1, size) : table->malloc(table->ctx, size);
    if (ptr == nullptr) {
      c10::profiledCPUMemoryReporter().OutOfMemory(size);
      // Programs know these words, which are those of PyTorch's own allocator.
      TORCH_CHECK_WITH(OutOfMemoryError, false,
                       "stowplan for DefaultCPUAllocator: can't allocate memory: you tried to allocate ", size,
                       " bytes.");
    }
    if (FLAGS_caffe2_cpu_allocator_do_junk_fill) std::memset(ptr, kJunk, size);
    c10::profiledCPUMemoryReporter().New(ptr, size);
    return {ptr, ptr, &free_block, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};

TableAllocator* const allocator = new TableAllocator;  // never destroyed: storages have its address

}  // namespace

// Whether the allocator is the one that PyTorch asks.
STOWPLAN_API int stow_torch_installed() { return c10::GetCPUAllocator() == allocator ? 1 : 0; }

// Puts the allocator in place; 0: it is there. 1: it has another table. 2: one of a higher priority is in place.
STOWPLAN_API int stow_torch_install(const Table* given) {
  if (table != nullptr && table != given) return 1;
  if (stow_torch_installed() != 0) return 0;
  table = given;
  former = c10::GetCPUAllocator();
  c10::SetCPUAllocator(allocator, 0);
  return stow_torch_installed() != 0 ? 0 : 2;
}

// Puts the former allocator back; 0 where another one has taken the place, which is left there.
STOWPLAN_API int stow_torch_uninstall() {
  if (stow_torch_installed() == 0) return 0;
  c10::SetCPUAllocator(former, 0);
  return 1;
}
