#include "cuda_api.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <type_traits>

#include "apart.hpp"

namespace stowplan::allocator {

namespace {

constexpr const char* kCuda = "libcuda.so.1";
constexpr const char* kHip[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};

// Fills the table from a library, CUDA's or HIP's; returns the name of a function that is missing.
std::string fill(CudaApi& api, void* library, bool is_cuda) {
  std::string missing, no_pools, no_virtual_memory, no_text;
  const auto find = [&](auto& function, const char* cuda_name, const char* hip_name, std::string& lacks) {
    const std::string full = is_cuda ? "cu" + std::string(cuda_name) : "hip" + std::string(hip_name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, full.c_str()));
    if (function == nullptr) lacks = full;
  };
#define STOWPLAN_FIND_IN(lacks, member, cuda, hip) find(api.member, #cuda, #hip, lacks);
#define STOWPLAN_FIND(member, cuda, hip, parameters) STOWPLAN_FIND_IN(missing, member, cuda, hip)
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
#define STOWPLAN_FIND(member, cuda, hip, parameters) STOWPLAN_FIND_IN(no_pools, member, cuda, hip)
  STOWPLAN_ORDERED_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
#define STOWPLAN_FIND(member, cuda, hip, parameters) STOWPLAN_FIND_IN(no_virtual_memory, member, cuda, hip)
  STOWPLAN_VIRTUAL_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
#define STOWPLAN_FIND(member, name, parameters) find(api.member, #name, #name, missing);
  if (is_cuda) {
    STOWPLAN_CONTEXT_FUNCTIONS(STOWPLAN_FIND)
  } else {
    STOWPLAN_DEVICE_FUNCTIONS(STOWPLAN_FIND)
    find(api.error_string, "", "GetErrorString", no_text);
    api.memory_pools_supported = 88;
  }
#undef STOWPLAN_FIND
#undef STOWPLAN_FIND_IN
  api.has_memory_pools = no_pools.empty();
  api.has_virtual_memory = no_virtual_memory.empty();
  return missing;
}

}  // namespace

std::string CudaApi::text_of(CudaError error) const {
  const char* text = nullptr;
  if (error_string != nullptr) text = error_string(error);
  if (get_error_string != nullptr) get_error_string(error, &text);
  return text != nullptr ? text : "unknown";
}

std::vector<int> CudaApi::peers_of(int device) const {
  std::vector<int> peers;
  int devices = 0;
  const Apart apart;
  const OnDevice on(*this, device);
  if (checked(count_devices(&devices)) != kCudaSuccess) return peers;
  for (int peer = 0; peer < devices; ++peer) {
    int can = 0;
    if (peer == device || checked(can_access_peer(&can, peer, device)) != kCudaSuccess || can == 0) continue;
    peers.push_back(peer);
  }
  return peers;
}

CudaContext CudaApi::context_of(int device) const {
  static std::array<std::atomic<CudaContext>, 64> contexts{};
  std::atomic<CudaContext>& known = contexts[static_cast<std::size_t>(device) % contexts.size()];
  CudaContext context = known;
  if (context == nullptr && initialize(0) == kCudaSuccess && retain_context(&context, device) == kCudaSuccess) {
    known = context;
  }
  return context;
}

// A library is never closed.
std::string find_driver(CudaApi& api) {
  constexpr int kLoaded = RTLD_LAZY | RTLD_NOLOAD;
  if (void* library = dlopen(kCuda, kLoaded)) return fill(api, library, true);
  for (const char* name : kHip) {
    if (void* library = dlopen(name, kLoaded)) return fill(api, library, false);
  }
  void* library = dlopen(kCuda, RTLD_LAZY);
  return library != nullptr ? fill(api, library, true) : kCuda;
}

}  // namespace stowplan::allocator
