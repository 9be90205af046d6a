#include "cuda_api.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <type_traits>
#include <utility>

#include "apart.hpp"

namespace stowplan::allocator {

namespace {

constexpr const char* kCuda = "libcuda.so.1";
constexpr const char* kHip[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};

// Fills the table from a library, CUDA's or HIP's; returns the name of a function that is missing.
std::string fill(CudaApi& api, void* library, bool is_cuda) {
  std::string all, maps, graphs, texts;  // of these, the name of one that is missing
  const auto find = [&](auto& function, const char* cuda_name, const char* hip_name, std::string& lacks) {
    const std::string full = is_cuda ? "cu" + std::string(cuda_name) : "hip" + std::string(hip_name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, full.c_str()));
    if (function == nullptr) lacks = full;
  };
#define STOWPLAN_FIND(of, member, cuda, hip, parameters) find(api.member, #cuda, #hip, of);
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_FIND)
  STOWPLAN_VIRTUAL_FUNCTIONS(STOWPLAN_FIND)
  STOWPLAN_GRAPH_FUNCTIONS(STOWPLAN_FIND)
  if (is_cuda) {
    STOWPLAN_CONTEXT_FUNCTIONS(STOWPLAN_FIND)
  } else {
    STOWPLAN_DEVICE_FUNCTIONS(STOWPLAN_FIND)
    find(api.error_string, "", "GetErrorString", texts);
  }
#undef STOWPLAN_FIND
  api.has_virtual_memory = maps.empty();
  if (!graphs.empty()) api.capture_info = nullptr;
  return all;
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

bool is_capturing(const CudaApi& api, std::int64_t stream) {
  int status = kCudaCaptureNone;
  return api.checked(api.stream_is_capturing(stream_handle(stream), &status)) != kCudaSuccess ||
         status != kCudaCaptureNone;
}

bool tell_end_of_graph(const CudaApi& api, std::int64_t stream, void (*over)(void*), void* argument) {
  int status = kCudaCaptureNone;
  unsigned long long id = 0;
  CudaGraph graph = nullptr;
  CudaUserObject object = nullptr;
  if (api.capture_info == nullptr) return false;
  api.checked(api.capture_info(stream_handle(stream), &status, &id, &graph, nullptr, nullptr));
  if (graph == nullptr) return false;
  if (api.checked(api.make_object(&object, argument, over, 1, kCudaUserObjectUnordered)) != kCudaSuccess) return false;
  // If this fails, the driver never calls `over`.
  api.checked(api.retain_object(graph, object, 1, kCudaGraphTakesReference));
  return true;
}

CudaError record_event(const CudaApi& api, int device, std::int64_t stream, CudaEvent& event) {
  if (stream < 0) stream = 0;
  const Apart apart;
  const OnDevice on(api, device);
  CudaError error = is_capturing(api, stream) ? kCudaCaptureUnsupported : kCudaSuccess;
  if (error == kCudaSuccess && event == nullptr) error = api.checked(api.event_create(&event, kCudaEventDisableTiming));
  if (error == kCudaSuccess) error = api.checked(api.event_record(event, stream_handle(stream)));
  // Another thread may have begun a capture meanwhile, and then the event is the capture's.
  if (error == kCudaSuccess && is_capturing(api, stream)) error = kCudaCaptureUnsupported;
  if (error == kCudaSuccess || event == nullptr) return error;
  const WhileCapturing allowed(api);
  api.checked(api.event_destroy(std::exchange(event, nullptr)));
  return error;
}

CudaApi no_device() {
  CudaApi api;
#define STOWPLAN_DO_NOTHING(of, member, ...) api.member = [](auto...) { return kCudaSuccess; };
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_DO_NOTHING)
  STOWPLAN_DEVICE_FUNCTIONS(STOWPLAN_DO_NOTHING)
#undef STOWPLAN_DO_NOTHING
  api.malloc = [](void**, std::size_t) { return kCudaOutOfMemory; };
  api.memory_info = [](std::size_t*, std::size_t*) { return kCudaInvalidHandle; };
  api.has_virtual_memory = false;
  return api;
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
