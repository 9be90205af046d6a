#include "cuda_api.hpp"

#include <dlfcn.h>

#include <vector>

namespace stowplan::allocator {

namespace {

struct Runtime {
  const char* prefix;
  int memory_pools_supported;
  std::vector<const char*> libraries;
};

const Runtime& cuda() {
  static const Runtime names{"cuda", 115, {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"}};
  return names;
}

const Runtime& hip() {
  static const Runtime names{"hip", 88, {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"}};
  return names;
}

// Null: there is none. A library is never closed.
void* open(const Runtime& runtime, int flags) {
  for (const char* name : runtime.libraries) {
    if (void* library = dlopen(name, flags)) return library;
  }
  return nullptr;
}

std::string fill(CudaApi& api, void* library, const Runtime& runtime) {
  const std::string prefix = runtime.prefix;
  api.memory_pools_supported = runtime.memory_pools_supported;
#define STOWPLAN_FIND(member, name, parameters)                                                  \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library, (prefix + #name).c_str())); \
  if (api.member == nullptr) return prefix + #name;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
  const std::string last = prefix + "GetErrorString";
  api.error_string = reinterpret_cast<decltype(api.error_string)>(dlsym(library, last.c_str()));
  return api.error_string == nullptr ? last : "";
}

}  // namespace

std::string find_runtime(CudaApi& api) {
  constexpr int kLoaded = RTLD_LAZY | RTLD_NOLOAD;
  if (dlsym(RTLD_DEFAULT, "cudaMallocAsync") != nullptr) return fill(api, RTLD_DEFAULT, cuda());
  if (void* library = open(cuda(), kLoaded)) return fill(api, library, cuda());
  if (void* library = open(hip(), kLoaded)) return fill(api, library, hip());
  void* library = open(cuda(), RTLD_LAZY);
  return fill(api, library != nullptr ? library : RTLD_DEFAULT, cuda());
}

}  // namespace stowplan::allocator
