// The CUDA runtime's functions that are not HIP's by another name: other values, another layout, other parameters.
#include <cstddef>
#include <cstring>

#include "cuda_values.hpp"

using simcuda::kVersion;

namespace {

constexpr std::size_t kPropertyBytes = 1032;  // cudaDeviceProp of CUDA 12, whose fields are the first of HIP's
static_assert(offsetof(hipDeviceProp_tR0600, hipReserved) == kPropertyBytes);

constexpr std::size_t kPointerBytes = 24;  // type, device and two pointers of cudaPointerAttributes

}  // namespace

extern "C" {

hipError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return hipSuccess;
}

hipError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

hipError_t cudaGetDeviceProperties_v2(void* out, int device) {
  hipDeviceProp_tR0600 found;
  const hipError_t error = hipGetDevicePropertiesR0600(&found, device);
  if (error == hipSuccess) std::memcpy(out, &found, kPropertyBytes);
  return error;
}

hipError_t cudaDeviceGetAttribute(int* value, int what, int device) { return simcuda::attribute(value, what, device); }

hipError_t cudaPointerGetAttributes(void* out, const void* pointer) {
  hipPointerAttribute_t found;
  const hipError_t error = hipPointerGetAttributes(&found, pointer);
  if (error == hipSuccess) std::memcpy(out, &found, kPointerBytes);
  return error;
}

hipError_t cudaGraphInstantiate(hipGraphExec_t* out, hipGraph_t graph, unsigned long long) {
  return hipGraphInstantiate(out, graph, nullptr, nullptr, 0);
}

hipError_t cudaGraphUpload(hipGraphExec_t, hipStream_t) { return hipSuccess; }
hipError_t cudaDeviceSetLimit(int, std::size_t) { return hipSuccess; }
hipError_t cudaProfilerStart() { return hipSuccess; }
hipError_t cudaProfilerStop() { return hipSuccess; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

// Rows one after the other: a row that is refused ends it.
hipError_t cudaMemcpy2DAsync(char* to, std::size_t to_pitch, const char* from, std::size_t from_pitch,
                             std::size_t width, std::size_t height, hipMemcpyKind kind, hipStream_t stream) {
  hipError_t error = hipSuccess;
  for (std::size_t row = 0; row < height && error == hipSuccess; ++row) {
    error = hipMemcpyAsync(to + row * to_pitch, from + row * from_pitch, width, kind, stream);
  }
  return error;
}

hipError_t cudaMemcpy2D(char* to, std::size_t to_pitch, const char* from, std::size_t from_pitch, std::size_t width,
                        std::size_t height, hipMemcpyKind kind) {
  const hipError_t error = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  return error == hipSuccess ? hipStreamSynchronize(nullptr) : error;
}

const char* cudaGetErrorName(hipError_t error) { return simcuda::runtime_name(error).c_str(); }
const char* cudaGetErrorString(hipError_t error) { return simcuda::text(error); }
}
