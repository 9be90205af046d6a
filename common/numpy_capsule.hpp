// A NEP 49 handler capsule around a HostMemory. This C++ depends on Python and NumPy, unlike the cores; the bindings
// include it, after NumPy's headers.
//
// Every array holds a reference to the capsule that its memory came from, so the capsule, and the HostMemory that it
// owns, live exactly as long as something may still be freed through it.
#pragma once

#include <Python.h>
#include <numpy/arrayobject.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "core/host_memory.hpp"

namespace stowplan {

template <class Service>
struct CapsuleContents {
  PyDataMem_Handler handler{};
  PyObject* upstream = nullptr;  // the capsule below, kept alive
  std::unique_ptr<HostMemory<Service>> memory;
};

inline PyDataMem_Handler* handler_of(PyObject* capsule) {
  return static_cast<PyDataMem_Handler*>(PyCapsule_GetPointer(capsule, "mem_handler"));
}

template <class Service>
void destroy_capsule(PyObject* capsule) {
  auto* contents = reinterpret_cast<CapsuleContents<Service>*>(handler_of(capsule));
  PyObject* upstream = contents->upstream;
  delete contents;
  Py_XDECREF(upstream);
}

// New reference, or null with a Python exception set. `upstream` is a handler capsule; requests below `small` bytes are
// passed on unseen to it, or to `below` where it is given.
template <class Service>
PyObject* make_handler_capsule(const char* name, PyObject* upstream, std::size_t small,
                               const Upstream* below = nullptr) {
  PyDataMem_Handler* handler = handler_of(upstream);
  if (handler == nullptr) return nullptr;
  auto contents = std::make_unique<CapsuleContents<Service>>();
  const PyDataMemAllocator& a = handler->allocator;
  contents->memory = std::make_unique<HostMemory<Service>>(
      below != nullptr ? *below : Upstream{a.ctx, a.malloc, a.calloc, a.realloc, a.free}, small);
  const Upstream functions = functions_of(contents->memory.get());
  std::snprintf(contents->handler.name, sizeof contents->handler.name, "%s", name);
  contents->handler.version = 1;
  contents->handler.allocator = {functions.ctx, functions.malloc, functions.calloc, functions.realloc, functions.free};
  PyObject* capsule = PyCapsule_New(&contents->handler, "mem_handler", destroy_capsule<Service>);
  if (capsule == nullptr) return nullptr;
  Py_INCREF(upstream);
  contents->upstream = upstream;
  contents.release();
  return capsule;
}

template <class Service>
HostMemory<Service>* memory_of(PyObject* capsule) {
  return reinterpret_cast<CapsuleContents<Service>*>(handler_of(capsule))->memory.get();
}

}  // namespace stowplan
