#include "cuda_api.hpp"

#include <dlfcn.h>

#include <initializer_list>

namespace stowplan::allocator {

namespace {

constexpr const char* kLibraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};

// The library to ask; it is never closed.
void* cuda_runtime() {
  if (dlsym(RTLD_DEFAULT, "cudaMallocAsync") != nullptr) return RTLD_DEFAULT;
  for (const int flags : {RTLD_LAZY | RTLD_NOLOAD, RTLD_LAZY}) {  // the one that is loaded, before any other
    for (const char* name : kLibraries) {
      if (void* library = dlopen(name, flags)) return library;
    }
  }
  return RTLD_DEFAULT;
}

}  // namespace

const char* find_cuda(CudaApi& api) {
  void* library = cuda_runtime();
#define STOWPLAN_FIND(member, name, parameters)                               \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library, #name)); \
  if (api.member == nullptr) return #name;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
  api.error_string = reinterpret_cast<decltype(api.error_string)>(dlsym(library, "cudaGetErrorString"));
  return api.error_string == nullptr ? "cudaGetErrorString" : nullptr;
}

}  // namespace stowplan::allocator
