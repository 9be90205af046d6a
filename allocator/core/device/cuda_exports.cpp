// What PyTorch and CuPy call: C functions that _core's shared library exports.
//
// PyTorch's are those of the installed pool, by the signatures of its header CUDAPluggableAllocator.h; the classes in
// them are the C++ library's. CuPy's (of cupy.cuda.CFunctionAllocator) have a pool as their first argument: they fail
// by null, as their callers would not catch.

#include <exception>

#include "cuda_errors.hpp"
#include "cuda_pool.hpp"

using namespace stowplan::allocator;

namespace {

CudaPools& installed() {
  CudaPools* pools = CudaPools::installed();
  if (pools == nullptr)
    throw CudaFailure("stowplan: no pool is installed; expected TorchPool(device=\"cuda\").install()");
  return *pools;
}

Stream stream_of(CudaStream stream) { return static_cast<Stream>(reinterpret_cast<std::intptr_t>(stream)); }

}  // namespace

#define STOWPLAN_EXPORT extern "C" __attribute__((visibility("default")))

STOWPLAN_EXPORT void* stow_cuda_malloc(std::size_t size, int device, CudaStream stream) {
  return installed().malloc(static_cast<Bytes>(size), device, stream_of(stream));
}

STOWPLAN_EXPORT void stow_cuda_free(void* ptr, std::size_t, int device, CudaStream) {
  if (ptr != nullptr) installed().free(ptr, device);
}

STOWPLAN_EXPORT void stow_cuda_record_stream(void* ptr, CudaStream stream) {
  if (ptr != nullptr) installed().record_stream(ptr, stream_of(stream));
}

STOWPLAN_EXPORT void stow_cuda_reset() { installed().give_back(); }

STOWPLAN_EXPORT void stow_cuda_memory_fraction(double fraction, int device) {
  installed().on(device).memory().set_fraction(fraction);
}

STOWPLAN_EXPORT void* stow_cuda_base_alloc(void* ptr, std::size_t* size) {
  std::size_t found = 0;
  void* base = installed().base_of(ptr, found);
  if (size != nullptr) *size = found;
  return base != nullptr ? base : ptr;
}

STOWPLAN_EXPORT void stow_cuda_begin_pool(int device, GraphPoolId id, StreamFilter filter) {
  installed().on(device).graphs().begin(id, std::move(filter));
}

STOWPLAN_EXPORT void stow_cuda_end_pool(int device, GraphPoolId id) { installed().on(device).graphs().end(id); }

STOWPLAN_EXPORT void stow_cuda_release_pool(int device, GraphPoolId id) { installed().on(device).graphs().release(id); }

STOWPLAN_EXPORT void* stow_cupy_malloc(void* pools, std::size_t size, int device) noexcept try {
  CudaPools& self = *static_cast<CudaPools*>(pools);
  const Stream stream = self.current_stream == nullptr ? 0 : self.current_stream();
  return self.malloc(static_cast<Bytes>(size), device, stream);
} catch (const std::exception&) {
  return nullptr;
}

STOWPLAN_EXPORT void stow_cupy_free(void* pools, void* ptr, int device) noexcept {
  if (ptr != nullptr) static_cast<CudaPools*>(pools)->free(ptr, device);
}
