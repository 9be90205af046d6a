// The functions of a device's runtime that a pool calls: a table of C functions, so that nothing is linked with a
// runtime, and a simulated device can stand in. They are CUDA's, or HIP's, which have the same parameters under other
// names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// CUDA's own handles; these are its names for them.
struct CUstream_st;
struct CUevent_st;
struct CUmemPoolHandle_st;

namespace stowplan::allocator {

using CudaStream = CUstream_st*;
using CudaEvent = CUevent_st*;
using CudaMemoryPool = CUmemPoolHandle_st*;
using CudaError = int;

constexpr CudaError kCudaSuccess = 0, kCudaOutOfMemory = 2, kCudaNotReady = 600, kCudaCaptureUnsupported = 900;
constexpr int kCudaReleaseThreshold = 4;         // cudaMemPoolAttrReleaseThreshold
constexpr unsigned kCudaEventDisableTiming = 2;  // cudaEventDisableTiming
constexpr int kCudaCaptureNone = 0;              // cudaStreamCaptureStatusNone
constexpr int kCudaRelaxed = 2;                  // cudaStreamCaptureModeRelaxed

// Member, name after the library's prefix ("cuda", "hip"), and parameters; each returns an error.
// clang-format off
#define STOWPLAN_CUDA_FUNCTIONS(function) \
  function(malloc, Malloc, (void**, std::size_t)) \
  function(free, Free, (void*)) \
  function(malloc_async, MallocAsync, (void**, std::size_t, CudaStream)) \
  function(free_async, FreeAsync, (void*, CudaStream)) \
  function(device_memory_pool, DeviceGetMemPool, (CudaMemoryPool*, int device)) \
  function(set_memory_pool, MemPoolSetAttribute, (CudaMemoryPool, int attribute, void*)) \
  function(trim_memory_pool, MemPoolTrimTo, (CudaMemoryPool, std::size_t keep)) \
  function(device_attribute, DeviceGetAttribute, (int* value, int attribute, int device)) \
  function(memory_info, MemGetInfo, (std::size_t* free, std::size_t* total)) \
  function(event_create, EventCreateWithFlags, (CudaEvent*, unsigned flags)) \
  function(event_record, EventRecord, (CudaEvent, CudaStream)) \
  function(event_query, EventQuery, (CudaEvent)) \
  function(event_synchronize, EventSynchronize, (CudaEvent)) \
  function(event_destroy, EventDestroy, (CudaEvent)) \
  function(stream_wait_event, StreamWaitEvent, (CudaStream, CudaEvent, unsigned flags)) \
  function(stream_is_capturing, StreamIsCapturing, (CudaStream, int* status)) \
  function(exchange_capture_mode, ThreadExchangeStreamCaptureMode, (int* mode)) \
  function(device_synchronize, DeviceSynchronize, ()) \
  function(get_device, GetDevice, (int* device)) \
  function(set_device, SetDevice, (int device)) \
  function(get_last_error, GetLastError, ())
// clang-format on

struct CudaApi {
// A name and a list of parameters: neither stands in parentheses of its own.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define STOWPLAN_MEMBER(member, name, parameters) CudaError(*member) parameters = nullptr;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_MEMBER)
#undef STOWPLAN_MEMBER
  const char* (*error_string)(CudaError) = nullptr;
  int memory_pools_supported = 115;  // the attribute's number: cudaDevAttrMemoryPoolsSupported

  // CUDA remembers an error that its caller has dealt with, and would tell the next one that asks.
  CudaError checked(CudaError error) const {
    if (error != kCudaSuccess) get_last_error();
    return error;
  }
};

// Fills the table from the runtime that the process has loaded, as PyTorch and CuPy have, CUDA's before HIP's, or else
// from the system's CUDA. Returns the name of a function that was not found; empty: none is missing.
std::string find_runtime(CudaApi& api);

// CUDA names its legacy default stream 0 and each thread's own 2; the others are addresses.
inline CudaStream stream_handle(std::int64_t stream) { return reinterpret_cast<CudaStream>(stream); }

// The calling thread's current device is this one, until the end of the scope.
class OnDevice {
 public:
  OnDevice(const CudaApi& api, int device) : api_(api) {
    api_.checked(api_.get_device(&before_));
    if (before_ != device) changed_ = api_.checked(api_.set_device(device)) == kCudaSuccess;
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (changed_) api_.set_device(before_);
  }

 private:
  const CudaApi& api_;
  int before_ = 0;
  bool changed_ = false;
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
