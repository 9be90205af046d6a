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
struct CUmemPoolHandle_st;

namespace stowplan::allocator {

using CudaContext = CUctx_st*;
using CudaStream = CUstream_st*;
using CudaEvent = CUevent_st*;
using CudaMemoryPool = CUmemPoolHandle_st*;
using CudaError = int;
using MemoryHandle = std::uint64_t;

// CUmemLocation, CUmemAllocationProp, CUmemAccessDesc and CUmemPoolProps, of which HIP's have the same layout.
struct MemoryLocation {
  int type = 1;  // a device
  int device = 0;
};
struct MemoryProperties {
  int type = 1;  // pinned: the only one there is
  int handle_types = 0;
  MemoryLocation location;
  void* metadata = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;  // read and write
};
struct MemoryPoolProperties {
  int type = 1;  // pinned: the only one there is
  int handle_types = 0;
  MemoryLocation location;
  void* security = nullptr;
  std::size_t most = 0;  // bytes; 0: as many as there are
  unsigned char reserved[56] = {};
};

constexpr CudaError kCudaSuccess = 0, kCudaOutOfMemory = 2, kCudaNotReady = 600, kCudaCaptureUnsupported = 900;
constexpr int kCudaReleaseThreshold = 4;         // cudaMemPoolAttrReleaseThreshold
constexpr int kCudaReservedCurrent = 5;          // cudaMemPoolAttrReservedMemCurrent
constexpr unsigned kCudaEventDisableTiming = 2;  // cudaEventDisableTiming
constexpr int kCudaCaptureNone = 0;              // cudaStreamCaptureStatusNone
constexpr int kCudaRelaxed = 2;                  // cudaStreamCaptureModeRelaxed

// Member, name after "cu" and after "hip", and parameters; each returns an error.
// clang-format off
#define STOWPLAN_CUDA_FUNCTIONS(function) \
  function(malloc, MemAlloc_v2, Malloc, (void**, std::size_t)) \
  function(free, MemFree_v2, Free, (void*)) \
  function(device_attribute, DeviceGetAttribute, DeviceGetAttribute, (int* value, int attribute, int device)) \
  function(memory_info, MemGetInfo_v2, MemGetInfo, (std::size_t* free, std::size_t* total)) \
  function(count_devices, DeviceGetCount, GetDeviceCount, (int*)) \
  function(can_access_peer, DeviceCanAccessPeer, DeviceCanAccessPeer, (int* can, int device, int peer)) \
  function(event_create, EventCreate, EventCreateWithFlags, (CudaEvent*, unsigned flags)) \
  function(event_record, EventRecord, EventRecord, (CudaEvent, CudaStream)) \
  function(event_query, EventQuery, EventQuery, (CudaEvent)) \
  function(event_synchronize, EventSynchronize, EventSynchronize, (CudaEvent)) \
  function(event_destroy, EventDestroy_v2, EventDestroy, (CudaEvent)) \
  function(stream_wait_event, StreamWaitEvent, StreamWaitEvent, (CudaStream, CudaEvent, unsigned flags)) \
  function(stream_is_capturing, StreamIsCapturing, StreamIsCapturing, (CudaStream, int* status)) \
  function(exchange_capture_mode, ThreadExchangeStreamCaptureMode, ThreadExchangeStreamCaptureMode, (int* mode)) \
  function(device_synchronize, CtxSynchronize, DeviceSynchronize, ())

// The functions of the stream-ordered allocator; the pool uses none of them where one is missing.
#define STOWPLAN_ORDERED_FUNCTIONS(function) \
  function(malloc_async, MemAllocFromPoolAsync, MallocFromPoolAsync, \
           (void**, std::size_t, CudaMemoryPool, CudaStream)) \
  function(free_async, MemFreeAsync, FreeAsync, (void*, CudaStream)) \
  function(make_memory_pool, MemPoolCreate, MemPoolCreate, (CudaMemoryPool*, const MemoryPoolProperties*)) \
  function(end_memory_pool, MemPoolDestroy, MemPoolDestroy, (CudaMemoryPool)) \
  function(set_memory_pool, MemPoolSetAttribute, MemPoolSetAttribute, (CudaMemoryPool, int attribute, void*)) \
  function(ask_memory_pool, MemPoolGetAttribute, MemPoolGetAttribute, (CudaMemoryPool, int attribute, void*)) \
  function(open_memory_pool, MemPoolSetAccess, MemPoolSetAccess, \
           (CudaMemoryPool, const MemoryAccess*, std::size_t)) \
  function(trim_memory_pool, MemPoolTrimTo, MemPoolTrimTo, (CudaMemoryPool, std::size_t keep))

// The functions of virtual memory; the pool uses none of them where one is missing.
#define STOWPLAN_VIRTUAL_FUNCTIONS(function) \
  function(granularity, MemGetAllocationGranularity, MemGetAllocationGranularity, \
           (std::size_t*, const MemoryProperties*, int recommended)) \
  function(reserve, MemAddressReserve, MemAddressReserve, \
           (void**, std::size_t, std::size_t alignment, void* address, unsigned long long)) \
  function(unreserve, MemAddressFree, MemAddressFree, (void*, std::size_t)) \
  function(create, MemCreate, MemCreate, (MemoryHandle*, std::size_t, const MemoryProperties*, unsigned long long)) \
  function(release, MemRelease, MemRelease, (MemoryHandle)) \
  function(map, MemMap, MemMap, (void*, std::size_t, std::size_t offset, MemoryHandle, unsigned long long)) \
  function(unmap, MemUnmap, MemUnmap, (void*, std::size_t)) \
  function(set_access, MemSetAccess, MemSetAccess, (void*, std::size_t, const MemoryAccess*, std::size_t))

// CUDA's alone, to come to a device; and HIP's.
#define STOWPLAN_CONTEXT_FUNCTIONS(function) \
  function(initialize, Init, (unsigned flags)) \
  function(retain_context, DevicePrimaryCtxRetain, (CudaContext*, int device)) \
  function(get_context, CtxGetCurrent, (CudaContext*)) \
  function(push_context, CtxPushCurrent_v2, (CudaContext)) \
  function(pop_context, CtxPopCurrent_v2, (CudaContext*)) \
  function(get_error_string, GetErrorString, (CudaError, const char**))
#define STOWPLAN_DEVICE_FUNCTIONS(function) \
  function(get_device, GetDevice, (int* device)) \
  function(set_device, SetDevice, (int device)) \
  function(get_last_error, GetLastError, ())
// clang-format on

struct CudaApi {
// A name and a list of parameters: neither stands in parentheses of its own.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define STOWPLAN_MEMBER(member, cuda, hip, parameters) CudaError(*member) parameters = nullptr;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_MEMBER)
  STOWPLAN_ORDERED_FUNCTIONS(STOWPLAN_MEMBER)
  STOWPLAN_VIRTUAL_FUNCTIONS(STOWPLAN_MEMBER)
#undef STOWPLAN_MEMBER
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define STOWPLAN_MEMBER(member, name, parameters) CudaError(*member) parameters = nullptr;
  STOWPLAN_CONTEXT_FUNCTIONS(STOWPLAN_MEMBER)
  STOWPLAN_DEVICE_FUNCTIONS(STOWPLAN_MEMBER)
#undef STOWPLAN_MEMBER
  const char* (*error_string)(CudaError) = nullptr;  // HIP's
  // All of these functions were found.
  bool has_memory_pools = true, has_virtual_memory = true;
  int memory_pools_supported = 115;  // the attribute's number: CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED

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

// CUDA names its legacy default stream 0 and each thread's own 2; the others are addresses.
inline CudaStream stream_handle(std::int64_t stream) { return reinterpret_cast<CudaStream>(stream); }

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
