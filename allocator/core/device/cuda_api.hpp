// The functions of CUDA's runtime that a pool calls: a table of C functions, so that nothing is linked with CUDA, and a
// simulated device can stand in.
#pragma once

#include <cstddef>
#include <cstdint>

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
constexpr int kCudaMemoryPoolsSupported = 115;   // cudaDevAttrMemoryPoolsSupported
constexpr int kCudaReleaseThreshold = 4;         // cudaMemPoolAttrReleaseThreshold
constexpr unsigned kCudaEventDisableTiming = 2;  // cudaEventDisableTiming
constexpr int kCudaCaptureNone = 0;              // cudaStreamCaptureStatusNone
constexpr int kCudaRelaxed = 2;                  // cudaStreamCaptureModeRelaxed

// Member, CUDA's name, and parameters, in CUDA's order; each returns an error, but for the last one.
// clang-format off
#define STOWPLAN_CUDA_FUNCTIONS(function) \
  function(malloc, cudaMalloc, (void**, std::size_t)) \
  function(free, cudaFree, (void*)) \
  function(malloc_async, cudaMallocAsync, (void**, std::size_t, CudaStream)) \
  function(free_async, cudaFreeAsync, (void*, CudaStream)) \
  function(device_memory_pool, cudaDeviceGetMemPool, (CudaMemoryPool*, int device)) \
  function(set_memory_pool, cudaMemPoolSetAttribute, (CudaMemoryPool, int attribute, void*)) \
  function(trim_memory_pool, cudaMemPoolTrimTo, (CudaMemoryPool, std::size_t keep)) \
  function(device_attribute, cudaDeviceGetAttribute, (int* value, int attribute, int device)) \
  function(memory_info, cudaMemGetInfo, (std::size_t* free, std::size_t* total)) \
  function(event_create, cudaEventCreateWithFlags, (CudaEvent*, unsigned flags)) \
  function(event_record, cudaEventRecord, (CudaEvent, CudaStream)) \
  function(event_query, cudaEventQuery, (CudaEvent)) \
  function(event_destroy, cudaEventDestroy, (CudaEvent)) \
  function(stream_wait_event, cudaStreamWaitEvent, (CudaStream, CudaEvent, unsigned flags)) \
  function(stream_is_capturing, cudaStreamIsCapturing, (CudaStream, int* status)) \
  function(exchange_capture_mode, cudaThreadExchangeStreamCaptureMode, (int* mode)) \
  function(device_synchronize, cudaDeviceSynchronize, ()) \
  function(get_device, cudaGetDevice, (int* device)) \
  function(set_device, cudaSetDevice, (int device)) \
  function(get_last_error, cudaGetLastError, ())
// clang-format on

struct CudaApi {
// A name and a list of parameters: neither stands in parentheses of its own.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define STOWPLAN_MEMBER(member, name, parameters) CudaError(*member) parameters = nullptr;
  STOWPLAN_CUDA_FUNCTIONS(STOWPLAN_MEMBER)
#undef STOWPLAN_MEMBER
  const char* (*error_string)(CudaError) = nullptr;
};

// Fills the table from the runtime that the process has loaded, as PyTorch has, or else from the system's. Returns
// null, or the name of a function that was not found.
const char* find_cuda(CudaApi& api);

// CUDA names its legacy default stream 0 and each thread's own 2; the others are addresses.
inline CudaStream stream_handle(std::int64_t stream) { return reinterpret_cast<CudaStream>(stream); }

// The calling thread's current device is this one, until the end of the scope.
class OnDevice {
 public:
  OnDevice(const CudaApi& api, int device) : api_(api) {
    if (api_.get_device(&before_) != kCudaSuccess) api_.get_last_error();
    if (before_ != device) changed_ = api_.set_device(device) == kCudaSuccess;
    if (before_ != device && !changed_) api_.get_last_error();
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

// The calling thread may ask for memory, and after events, while a stream is being captured by whoever it is.
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
