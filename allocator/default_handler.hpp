// NumPy's default memory handler with a pool in its place, for all threads and contexts of the process.
//
//     NumPy ──> the default handler's functions ──> the pool that serves now ──> ... ──> what stood there before
//                        free, resize └──> the pools that ever served: whose is the block?
//
// The default handler is a struct of function pointers behind a public capsule, one for the process; a new context has
// it. The pointers are replaced once, with the GIL held, and stay: arrays remember the handler, not the pool, so a pool
// that has served must be found again for each of their blocks. For the same reason it is never destroyed.
//
// This C++ depends on Python and NumPy, unlike the core.
#pragma once

#include <Python.h>
#include <numpy/arrayobject.h>

#include <atomic>
#include <memory>
#include <new>

#include "core/host_pool.hpp"
#include "profiler/numpy_capsule.hpp"

namespace stowplan::allocator {

class DefaultHandler {
 public:
  // The one of this process; null with a Python exception set where NumPy has none.
  static DefaultHandler* instance(PyObject* default_capsule) {
    if (only_ == nullptr) only_ = take_place(default_capsule);
    return only_;
  }
  // The same; null where nobody has asked for it yet.
  static DefaultHandler* instance() { return only_; }

  // What stood there before.
  const PyDataMemAllocator& original() const { return original_; }
  const HostMemory* serving() const { return serving_.load(std::memory_order_acquire); }

  // Has a pool serve from now on; `capsule` is its handler, and lives for ever.
  void serve(HostMemory* memory, PyObject* capsule) {
    if (!has_served(memory)) {
      newest_.store(new Served{memory, newest_.load()}, std::memory_order_release);
      Py_INCREF(capsule);
    }
    serving_.store(memory, std::memory_order_release);
  }

  // Has nobody serve; blocks that pools have handed out stay theirs.
  void rest() { serving_.store(nullptr, std::memory_order_release); }

 private:
  struct Served {
    HostMemory* memory;
    const Served* before;
  };

  static DefaultHandler* take_place(PyObject* default_capsule) {
    PyDataMem_Handler* handler = profiler::handler_of(default_capsule);
    if (handler == nullptr) return nullptr;
    auto* ours = new DefaultHandler(handler->allocator);
    handler->allocator = {ours, malloc, calloc, realloc, free};
    return ours;
  }

  explicit DefaultHandler(const PyDataMemAllocator& original) : original_(original) {}

  bool has_served(const HostMemory* memory) const {
    for (const Served* one = newest_.load(); one != nullptr; one = one->before) {
      if (one->memory == memory) return true;
    }
    return false;
  }

  // The pool whose block it is, or null.
  HostMemory* owner_of(void* ptr, std::size_t size) const {
    for (const Served* one = newest_.load(std::memory_order_acquire); one != nullptr; one = one->before) {
      if (one->memory->knows(ptr, size)) return one->memory;
    }
    return nullptr;
  }

  static DefaultHandler& of(void* ctx) { return *static_cast<DefaultHandler*>(ctx); }

  // Without memory for the bookkeeping a request fails, as it does without memory.
  static void* malloc(void* ctx, std::size_t size) noexcept try {
    HostMemory* memory = of(ctx).serving_.load(std::memory_order_acquire);
    return memory != nullptr ? memory->malloc(size) : of(ctx).original_.malloc(of(ctx).original_.ctx, size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  static void* calloc(void* ctx, std::size_t count, std::size_t item_size) noexcept try {
    HostMemory* memory = of(ctx).serving_.load(std::memory_order_acquire);
    return memory != nullptr ? memory->calloc(count, item_size)
                             : of(ctx).original_.calloc(of(ctx).original_.ctx, count, item_size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  static void* realloc(void* ctx, void* ptr, std::size_t new_size) noexcept try {
    if (ptr == nullptr) return malloc(ctx, new_size);
    HostMemory* memory = of(ctx).owner_of(ptr, SIZE_MAX);
    return memory != nullptr ? memory->realloc(ptr, new_size)
                             : of(ctx).original_.realloc(of(ctx).original_.ctx, ptr, new_size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  static void free(void* ctx, void* ptr, std::size_t size) noexcept {
    HostMemory* memory = of(ctx).owner_of(ptr, size);
    if (memory != nullptr) return memory->free(ptr, size);
    of(ctx).original_.free(of(ctx).original_.ctx, ptr, size);
  }

  static inline DefaultHandler* only_ = nullptr;

  const PyDataMemAllocator original_;
  std::atomic<HostMemory*> serving_{nullptr};
  std::atomic<const Served*> newest_{nullptr};
};

// As make_handler_capsule(), above what NumPy's default handler was at first: a pool in its place is not asked by
// another.
inline PyObject* make_pool_capsule(const char* name, PyObject* default_capsule, std::size_t small) {
  const DefaultHandler* placed = DefaultHandler::instance();
  return profiler::make_handler_capsule<HostLanes>(name, default_capsule, small,
                                                   placed == nullptr ? nullptr : &placed->original());
}

// Has a pool serve in the place of NumPy's default handler; false with a Python exception set where NumPy has none.
inline bool install(PyObject* default_capsule, PyObject* capsule) {
  DefaultHandler* handler = DefaultHandler::instance(default_capsule);
  if (handler == nullptr) return false;
  handler->serve(profiler::memory_of<HostLanes>(capsule), capsule);
  return true;
}

// Whether a pool serves there; that of the capsule, where one is given.
inline bool is_installed(PyObject* capsule) {
  const DefaultHandler* placed = DefaultHandler::instance();
  const HostMemory* serving = placed == nullptr ? nullptr : placed->serving();
  return serving != nullptr && (capsule == Py_None || serving == profiler::memory_of<HostLanes>(capsule));
}

// Precondition: a pool is installed.
inline void uninstall() { DefaultHandler::instance()->rest(); }

}  // namespace stowplan::allocator
