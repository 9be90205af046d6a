// NumPy's default memory handler with a dispatcher (dispatcher.hpp) in its place, for all threads and contexts of
// the process.
//
// The default handler is a struct of function pointers behind a public capsule, one for the process; a new context has
// it. The pointers are replaced once, with the GIL held, and stay: arrays remember the handler.
//
// This C++ depends on Python and NumPy, unlike the core.
#pragma once

#include <Python.h>
#include <numpy/arrayobject.h>

#include "core/host/dispatcher.hpp"
#include "profiler/numpy_capsule.hpp"

namespace stowplan::allocator {

class DefaultHandler {
 public:
  // The dispatcher in the handler's place; null with a Python exception set where NumPy has none.
  static Dispatcher* instance(PyObject* default_capsule) {
    if (only_ == nullptr) only_ = take_place(default_capsule);
    return only_;
  }
  // The same; null where it was never asked for.
  static Dispatcher* instance() { return only_; }

 private:
  static Dispatcher* take_place(PyObject* default_capsule) {
    PyDataMem_Handler* handler = profiler::handler_of(default_capsule);
    if (handler == nullptr) return nullptr;
    const PyDataMemAllocator& a = handler->allocator;
    auto* ours = new Dispatcher({a.ctx, a.malloc, a.calloc, a.realloc, a.free});
    const Upstream functions = ours->functions();
    handler->allocator = {functions.ctx, functions.malloc, functions.calloc, functions.realloc, functions.free};
    return ours;
  }

  static inline Dispatcher* only_ = nullptr;
};

// As make_handler_capsule(), above what NumPy's default handler was at first: a pool in its place is not asked by
// another.
inline PyObject* make_pool_capsule(const char* name, PyObject* default_capsule, std::size_t small) {
  const Dispatcher* placed = DefaultHandler::instance();
  return profiler::make_handler_capsule<HostLanes>(name, default_capsule, small,
                                                   placed == nullptr ? nullptr : &placed->original());
}

// Has a pool serve in the place of NumPy's default handler; false with a Python exception set where NumPy has none.
inline bool install(PyObject* default_capsule, PyObject* capsule) {
  Dispatcher* placed = DefaultHandler::instance(default_capsule);
  if (placed == nullptr) return false;
  HostMemory* memory = profiler::memory_of<HostLanes>(capsule);
  if (!placed->has_served(memory)) Py_INCREF(capsule);  // for ever
  placed->serve(memory);
  return true;
}

// Whether a pool serves there; that of the capsule, where one is given.
inline bool is_installed(PyObject* capsule) {
  const Dispatcher* placed = DefaultHandler::instance();
  const HostMemory* serving = placed == nullptr ? nullptr : placed->serving();
  return serving != nullptr && (capsule == Py_None || serving == profiler::memory_of<HostLanes>(capsule));
}

// Precondition: a pool is installed.
inline void uninstall() { DefaultHandler::instance()->stop_serving(); }

}  // namespace stowplan::allocator
