// The functions of a device's driver that a pool calls: a table of C functions, so that nothing is linked with a
// driver, and a simulated device can stand in. They are those of CUDA's driver, or HIP's, which have the same
// parameters under other names.
//
// Several libraries of a process (CuPy) may each have a CUDA runtime linked in; the process has one driver. A device of
// the runtime is the device's primary context to the driver ("synonymous": CUDA Driver API, "Primary Context
// Management"), and handles, the numbers of errors and attributes are the same. So a thread comes to a device by its
// primary context, which is pushed and popped: the pool leaves no thread a context, and makes none on a device that the
// program does not use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan.hpp"

// CUDA's own handles; these are its names for them.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUuserObject_st;

namespace stowplan::allocator {

using CudaContext = CUctx_st*;
using CudaStream = CUstream_st*;
using CudaEvent = CUevent_st*;
using CudaGraph = CUgraph_st*;
using CudaUserObject = CUuserObject_st*;
using CudaError = int;
using MemoryHandle = std::uint64_t;

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc, of which HIP's have the same layout.
struct MemoryLocation {
  int type = 1;  // a device
  int device = 0;
};
struct MemoryProperties {
  int type = 1;  // pinned: the only one there is
  int handle_types = 0;
  MemoryLocation location;
  void* metadata = nullptr;
  unsigned char compression = 0, rdma = 0;
  unsigned char others[6] = {};
};
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;  // read and write
};
constexpr CudaError kCudaSuccess = 0, kCudaOutOfMemory = 2, kCudaNotReady = 600, kCudaCaptureUnsupported = 900,
                    kCudaInvalidHandle = 400;
constexpr unsigned kCudaEventDisableTiming = 2;   // cudaEventDisableTiming
constexpr int kCudaCaptureNone = 0;               // cudaStreamCaptureStatusNone
constexpr unsigned kCudaUserObjectUnordered = 1;  // cudaUserObjectNoDestructorSync
constexpr unsigned kCudaGraphTakesReference = 1;  // cudaGraphUserObjectMove
constexpr int kCudaRelaxed = 2;                   // cudaStreamCaptureModeRelaxed
constexpr int kCudaRdmaWithVirtualMemory = 110;   // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED

// A row: the list that a missing function goes to, its member, its names after "cu" and after "hip", its parameters.
// Every function returns an error.
// clang-format off
#define STOWPLAN_CUDA_FUNCTIONS(function) \
  function(all, malloc, MemAlloc_v2, Malloc, (void**, std::size_t)) \
  function(all, free, MemFree_v2, Free, (void*)) \
  function(all, memory_info, MemGetInfo_v2, MemGetInfo, (std::size_t* free, std::size_t* total)) \
  function(all, count_devices, DeviceGetCount, GetDeviceCount, (int*)) \
  function(all, can_access_peer, DeviceCanAccessPeer, DeviceCanAccessPeer, (int* can, int device, int peer)) \
  function(all, event_create, EventCreate, EventCreateWithFlags, (CudaEvent*, unsigned flags)) \
  function(all, event_record, EventRecord, EventRecord, (CudaEvent, CudaStream)) \
  function(all, event_query, EventQuery, EventQuery, (CudaEvent)) \
  function(all, event_synchronize, EventSynchronize, EventSynchronize, (CudaEvent)) \
  function(all, event_destroy, EventDestroy_v2, EventDestroy, (CudaEvent)) \
  function(all, stream_wait_event, StreamWaitEvent, StreamWaitEvent, (CudaStream, CudaEvent, unsigned flags)) \
  function(all, stream_query, StreamQuery, StreamQuery, (CudaStream)) \
  function(all, stream_is_capturing, StreamIsCapturing, StreamIsCapturing, (CudaStream, int* status)) \
  function(all, exchange_capture_mode, ThreadExchangeStreamCaptureMode, ThreadExchangeStreamCaptureMode, (int* mode)) \
  function(all, device_synchronize, CtxSynchronize, DeviceSynchronize, ())

// The functions of virtual memory; the pool uses none of them where one is missing.
#define STOWPLAN_VIRTUAL_FUNCTIONS(function) \
  function(maps, granularity, MemGetAllocationGranularity, MemGetAllocationGranularity, \
           (std::size_t*, const MemoryProperties*, int recommended)) \
  function(maps, reserve, MemAddressReserve, MemAddressReserve, \
           (void**, std::size_t, std::size_t alignment, void* address, unsigned long long)) \
  function(maps, unreserve, MemAddressFree, MemAddressFree, (void*, std::size_t)) \
  function(maps, create, MemCreate, MemCreate, \
           (MemoryHandle*, std::size_t, const MemoryProperties*, unsigned long long)) \
  function(maps, release, MemRelease, MemRelease, (MemoryHandle)) \
  function(maps, map, MemMap, MemMap, (void*, std::size_t, std::size_t offset, MemoryHandle, unsigned long long)) \
  function(maps, unmap, MemUnmap, MemUnmap, (void*, std::size_t)) \
  function(maps, set_access, MemSetAccess, MemSetAccess, (void*, std::size_t, const MemoryAccess*, std::size_t))

// What tells when a graph has gone; where one is missing, nothing does.
#define STOWPLAN_GRAPH_FUNCTIONS(function) \
  function(graphs, capture_info, StreamGetCaptureInfo_v2, StreamGetCaptureInfo_v2, \
           (CudaStream, int* status, unsigned long long* id, CudaGraph*, void* dependencies, std::size_t* count)) \
  function(graphs, make_object, UserObjectCreate, UserObjectCreate, \
           (CudaUserObject*, void* argument, void (*destroy)(void*), unsigned count, unsigned flags)) \
  function(graphs, retain_object, GraphRetainUserObject, GraphRetainUserObject, \
           (CudaGraph, CudaUserObject, unsigned count, unsigned flags))

// CUDA's alone, to come to a device; and HIP's.
#define STOWPLAN_CONTEXT_FUNCTIONS(function) \
  function(all, initialize, Init, Init, (unsigned flags)) \
  function(all, device_attribute, DeviceGetAttribute, DeviceGetAttribute, (int* value, int attribute, int device)) \
  function(all, retain_context, DevicePrimaryCtxRetain, DevicePrimaryCtxRetain, (CudaContext*, int device)) \
  function(all, get_context, CtxGetCurrent, CtxGetCurrent, (CudaContext*)) \
  function(all, push_context, CtxPushCurrent_v2, CtxPushCurrent_v2, (CudaContext)) \
  function(all, pop_context, CtxPopCurrent_v2, CtxPopCurrent_v2, (CudaContext*)) \
  function(all, get_error_string, GetErrorString, GetErrorString, (CudaError, const char**))
#define STOWPLAN_DEVICE_FUNCTIONS(function) \
  function(all, get_device, GetDevice, GetDevice, (int* device)) \
  function(all, set_device, SetDevice, SetDevice, (int device)) \
  function(all, get_last_error, GetLastError, GetLastError, ())
// clang-format on

struct CudaApi {
// A name and a list of parameters: neither stands in parentheses of its own.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define STOWPLAN_MEMBER(of, member, cuda, hip, parameters) CudaError(*member) parameters = nullptr;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_MEMBER)
  STOWPLAN_VIRTUAL_FUNCTIONS(STOWPLAN_MEMBER)
  STOWPLAN_GRAPH_FUNCTIONS(STOWPLAN_MEMBER)
  STOWPLAN_CONTEXT_FUNCTIONS(STOWPLAN_MEMBER)
  STOWPLAN_DEVICE_FUNCTIONS(STOWPLAN_MEMBER)
#undef STOWPLAN_MEMBER
  const char* (*error_string)(CudaError) = nullptr;  // HIP's
  bool has_virtual_memory = true;                    // all of its functions were found

  // HIP remembers an error that its caller has dealt with, and would tell the next one that asks.
  CudaError checked(CudaError error) const {
    if (error != kCudaSuccess && get_last_error != nullptr) get_last_error();
    return error;
  }
  std::string text_of(CudaError error) const;
  // The devices that can read a device's memory, but itself.
  std::vector<int> peers_of(int device) const;
  // The device's primary context, which is retained when it is first asked for; null where there is none to be had.
  CudaContext context_of(int device) const;
};

// Fills the table from CUDA's driver or the HIP that the process has loaded, as PyTorch and CuPy have, or else from the
// system's driver. Returns the name of a function that was not found; empty: none is missing. It calls nothing.
std::string find_driver(CudaApi& api);

// The table where there is no device: everything is on stream 0, and over at once.
CudaApi no_device();

// CUDA names its legacy default stream 0 and each thread's own 2; the others are addresses.
inline CudaStream stream_handle(std::int64_t stream) { return reinterpret_cast<CudaStream>(stream); }

// Whether a stream is being captured, or the driver does not say.
bool is_capturing(const CudaApi& api, std::int64_t stream);
// Has the driver call `over(argument)` once, when the graph that a stream is captured into and its executable graphs
// are destroyed and no launch of them runs: on any thread, and `over` may call nothing of CUDA's. False: the driver
// will not call it (CUDA C++ Programming Guide, "CUDA User Objects").
bool tell_end_of_graph(const CudaApi& api, std::int64_t stream, void (*over)(void*), void* argument);
// Has an event, made if it is null, stand behind all that a stream has been given. While the stream is being captured,
// kCudaCaptureUnsupported. For a thread's own default stream, which has a number below 0, the legacy one stands: it
// waits for these. After an error there is no event.
CudaError record_event(const CudaApi& api, int device, std::int64_t stream, CudaEvent& event);

// The calling thread's current device is this one, until the end of the scope.
class OnDevice {
 public:
  OnDevice(const CudaApi& api, int device) : api_(api) {
    if (api_.push_context != nullptr) {
      CudaContext context = api_.context_of(device), current = nullptr;
      pushed_ = context != nullptr && (api_.get_context(&current) != kCudaSuccess || current != context) &&
                api_.push_context(context) == kCudaSuccess;
      return;
    }
    api_.checked(api_.get_device(&before_));
    if (before_ != device) changed_ = api_.checked(api_.set_device(device)) == kCudaSuccess;
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    CudaContext popped = nullptr;
    if (pushed_) api_.pop_context(&popped);
    if (changed_) api_.set_device(before_);
  }

 private:
  const CudaApi& api_;
  int before_ = 0;
  bool changed_ = false, pushed_ = false;
};

// The calling thread may ask for memory, and after events, while a stream is being captured, by any thread.
class WhileCapturing {
 public:
  explicit WhileCapturing(const CudaApi& api) : api_(api) { api_.exchange_capture_mode(&mode_); }
  WhileCapturing(const WhileCapturing&) = delete;
  WhileCapturing& operator=(const WhileCapturing&) = delete;
  ~WhileCapturing() { api_.exchange_capture_mode(&mode_); }

 private:
  const CudaApi& api_;
  int mode_ = kCudaRelaxed;
};

}  // namespace stowplan::allocator
