// CUDA's driver over the simulated HIP: the functions that the compiled pool calls, by the driver's names. As there, a
// call that needs a context fails where the thread has none, and to push one leaves HIP's own current device alone.
// Of calls that may wait, those that are made with Python's GIL held are noted.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

extern "C" {
int hipGetDevice(int*);
int hipSetDevice(int);
const char* hipGetErrorString(int);
}

namespace {

constexpr int kInvalidContext = 201, kNotSupported = 801;
thread_local std::vector<std::intptr_t> contexts;  // device + 1 of each; the last one is current
std::uint64_t retained = 0;                        // a bit for each device
std::atomic<const char*> under_gil{""};            // the last one

void note_gil(const char* name) {
  static const auto check = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (check() != 0) under_gil = name;
}

// The current context's device is HIP's, too, while a function of HIP's runs.
template <class F, class... Arguments>
int call(F* function, Arguments... arguments) {
  if (contexts.empty()) return kInvalidContext;
  int before = 0;
  hipGetDevice(&before);
  const int device = static_cast<int>(contexts.back()) - 1;
  if (device != before) hipSetDevice(device);
  const int error = function(arguments...);
  if (device != before) hipSetDevice(before);
  return error;
}

}  // namespace

#define IN_A_CONTEXT(cuda, hip, parameters, arguments) \
  extern "C" __attribute__((weak)) int hip parameters; \
  extern "C" int cuda parameters { return hip == nullptr ? kNotSupported : (note_gil(#cuda), call arguments); }
#define ANYWHERE(cuda, hip, parameters, arguments)     \
  extern "C" __attribute__((weak)) int hip parameters; \
  extern "C" int cuda parameters { return hip == nullptr ? kNotSupported : (note_gil(#cuda), hip arguments); }

IN_A_CONTEXT(cuMemAlloc_v2, hipMalloc, (void** out, std::size_t size), (hipMalloc, out, size))
IN_A_CONTEXT(cuMemFree_v2, hipFree, (void* pointer), (hipFree, pointer))
IN_A_CONTEXT(cuMemGetInfo_v2, hipMemGetInfo, (std::size_t* free, std::size_t* total), (hipMemGetInfo, free, total))
IN_A_CONTEXT(cuEventCreate, hipEventCreateWithFlags, (void** out, unsigned flags),
             (hipEventCreateWithFlags, out, flags))
IN_A_CONTEXT(cuEventRecord, hipEventRecord, (void* event, void* stream), (hipEventRecord, event, stream))
IN_A_CONTEXT(cuStreamWaitEvent, hipStreamWaitEvent, (void* stream, void* event, unsigned flags),
             (hipStreamWaitEvent, stream, event, flags))
IN_A_CONTEXT(cuStreamQuery, hipStreamQuery, (void* stream), (hipStreamQuery, stream))
IN_A_CONTEXT(cuCtxSynchronize, hipDeviceSynchronize, (), (hipDeviceSynchronize))
ANYWHERE(cuEventQuery, hipEventQuery, (void* event), (event))
ANYWHERE(cuEventSynchronize, hipEventSynchronize, (void* event), (event))
ANYWHERE(cuEventDestroy_v2, hipEventDestroy, (void* event), (event))
ANYWHERE(cuDeviceGetCount, hipGetDeviceCount, (int* count), (count))
ANYWHERE(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer, (int* can, int device, int peer), (can, device, peer))

extern "C" {

int hipDeviceGetAttribute(int*, int, int);
int hipStreamIsCapturing(void*, int*);
int hipStreamGetCaptureInfo_v2(void*, int*, unsigned long long*, void**, void*, std::size_t*);
int hipUserObjectCreate(void**, void*, void (*)(void*), unsigned, unsigned);
int hipGraphRetainUserObject(void*, void*, unsigned, unsigned);
int hipThreadExchangeStreamCaptureMode(int*);

int cuStreamIsCapturing(void* stream, int* status) { return call(hipStreamIsCapturing, stream, status); }
int cuStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id, void** graph, void* dependencies,
                              std::size_t* count) {
  return call(hipStreamGetCaptureInfo_v2, stream, status, id, graph, dependencies, count);
}
int cuUserObjectCreate(void** out, void* argument, void (*destroy)(void*), unsigned count, unsigned flags) {
  return hipUserObjectCreate(out, argument, destroy, count, flags);
}
int cuGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
  return hipGraphRetainUserObject(graph, object, count, flags);
}
int cuThreadExchangeStreamCaptureMode(int* mode) { return hipThreadExchangeStreamCaptureMode(mode); }
int cuInit(unsigned) { return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  return hipDeviceGetAttribute(value, attribute, device);
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  retained |= std::uint64_t{1} << device;
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(device) + 1);
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(contexts.empty() ? 0 : contexts.back());
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(reinterpret_cast<std::intptr_t>(context));
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return kInvalidContext;
  cuCtxGetCurrent(context);
  contexts.pop_back();
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = hipGetErrorString(error);
  return 0;
}

// What tests read.
std::uint64_t simcuda_retained() { return retained; }
std::size_t simcuda_contexts() { return contexts.size(); }
const char* simcuda_under_gil() { return under_gil; }

}  // extern "C"
