#include "cuda_api.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>

#include "apart.hpp"

namespace stowplan::allocator {

namespace {

constexpr const char* kCuda = "libcuda.so.1";
constexpr const char* kHip[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};

// Finds a function, or returns false and its name.
template <class F>
bool find(void* library, F*& function, const std::string& name, std::string& missing) {
  function = reinterpret_cast<F*>(dlsym(library, name.c_str()));
  if (function == nullptr) missing = name;
  return function != nullptr;
}

std::string fill_cuda(CudaApi& api, void* library) {
  std::string missing, unused;
  api.library = kCuda;
  api.virtual_memory = "cuMem";
#define STOWPLAN_FIND(member, cuda, hip, parameters) \
  if (!find(library, api.member, "cu" #cuda, missing)) return missing;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
#define STOWPLAN_FIND(member, cuda, hip, parameters) \
  api.has_memory_pools &= find(library, api.member, "cu" #cuda, unused);
  STOWPLAN_ORDERED_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
#define STOWPLAN_FIND(member, name, parameters) \
  if (!find(library, api.member, "cu" #name, missing)) return missing;
  STOWPLAN_CONTEXT_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
  return missing;
}

std::string fill_hip(CudaApi& api, void* library, const char* name) {
  std::string missing, unused;
#define STOWPLAN_FIND(member, cuda, hip, parameters) \
  if (!find(library, api.member, "hip" #hip, missing)) return missing;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
#define STOWPLAN_FIND(member, cuda, hip, parameters) \
  api.has_memory_pools &= find(library, api.member, "hip" #hip, unused);
  STOWPLAN_ORDERED_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
#define STOWPLAN_FIND(member, name, parameters) \
  if (!find(library, api.member, "hip" #name, missing)) return missing;
  STOWPLAN_DEVICE_FUNCTIONS(STOWPLAN_FIND)
#undef STOWPLAN_FIND
  api.memory_pools_supported = 88;
  api.library = name;
  api.virtual_memory = "hipMem";
  find(library, api.error_string, "hipGetErrorString", missing);
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

VirtualMemory CudaApi::virtual_memory_of(int device) const {
  VirtualMemory memory;
  memory.devices = peers_of(device);
  memory.devices.insert(memory.devices.begin(), device);
  std::size_t free = 0, total = 0;
  const Apart apart;
  const OnDevice on(*this, device);
  if (library == nullptr || checked(memory_info(&free, &total)) != kCudaSuccess ||
      !memory.find(library, virtual_memory)) {
    return {};
  }
  memory.reach = static_cast<Bytes>(total);
  return memory.page() > 0 ? memory : VirtualMemory{};
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
  if (void* library = dlopen(kCuda, kLoaded)) return fill_cuda(api, library);
  for (const char* name : kHip) {
    if (void* library = dlopen(name, kLoaded)) return fill_hip(api, library, name);
  }
  void* library = dlopen(kCuda, RTLD_LAZY);
  return library != nullptr ? fill_cuda(api, library) : kCuda;
}

}  // namespace stowplan::allocator
