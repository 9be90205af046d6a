// What the CUDA runtime and the driver both answer in numbers and names of their own.
#pragma once

#include <cctype>
#include <cstddef>
#include <map>
#include <string>

#include "hip.hpp"

namespace simcuda {

constexpr int kVersion = 12020;

// CUDA's numbers of a device's attributes are not HIP's.
inline hipError_t attribute(int* value, int what, int device) {
  if (what == 102) return hipDeviceGetAttribute(value, hipDeviceAttributeVirtualMemoryManagementSupported, device);
  if (what == 115) return hipDeviceGetAttribute(value, hipDeviceAttributeMemoryPoolsSupported, device);
  hipDeviceProp_tR0600 p;
  if (const hipError_t error = hipGetDevicePropertiesR0600(&p, device); error != hipSuccess) return error;
  // clang-format off
  const std::map<int, long long> values{
      {1, p.maxThreadsPerBlock}, {2, p.maxThreadsDim[0]}, {3, p.maxThreadsDim[1]}, {4, p.maxThreadsDim[2]},
      {5, p.maxGridSize[0]}, {6, p.maxGridSize[1]}, {7, p.maxGridSize[2]}, {8, p.sharedMemPerBlock},
      {9, p.totalConstMem}, {10, p.warpSize}, {11, p.memPitch}, {12, p.regsPerBlock}, {13, p.clockRate},
      {14, p.textureAlignment}, {15, p.asyncEngineCount}, {16, p.multiProcessorCount}, {19, 1}, {31, 1},
      {33, p.pciBusID}, {36, p.memoryClockRate}, {37, 4096}, {38, p.l2CacheSize}, {39, p.maxThreadsPerMultiProcessor},
      {40, p.asyncEngineCount}, {41, 1}, {75, p.major}, {76, p.minor}, {78, 1}, {81, p.sharedMemPerMultiprocessor},
      {82, p.regsPerMultiprocessor}, {83, 1}, {89, 1}, {97, p.sharedMemPerBlock}, {99, 1},
  };
  // clang-format on
  const auto found = values.find(what);
  *value = found == values.end() ? 0 : static_cast<int>(found->second);
  return hipSuccess;
}

// HIP's errors have CUDA's numbers, and the driver's names: hipErrorOutOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
inline std::string driver_name(hipError_t error) {
  std::string found = "CUDA";
  for (const char* letter = hipGetErrorName(error) + 3; *letter != '\0'; ++letter) {
    if (std::isupper(static_cast<unsigned char>(*letter)) != 0) found += '_';
    found += static_cast<char>(std::toupper(static_cast<unsigned char>(*letter)));
  }
  return found;
}

// The runtime has other names for some of them.
inline const std::string& runtime_name(hipError_t error) {
  static const std::map<hipError_t, const char*> others{
      {hipErrorOutOfMemory, "cudaErrorMemoryAllocation"},
      {hipErrorInvalidImage, "cudaErrorInvalidKernelImage"},
      {hipErrorInvalidContext, "cudaErrorDeviceUninitialized"},
      {hipErrorInvalidHandle, "cudaErrorInvalidResourceHandle"},
      {hipErrorNotFound, "cudaErrorSymbolNotFound"},
  };
  thread_local std::string found;
  const auto other = others.find(error);
  found = other != others.end() ? other->second : std::string("cuda") + (hipGetErrorName(error) + 3);
  return found;
}

// Most errors have no text but their name.
inline const char* text(hipError_t error) {
  const char* found = hipGetErrorString(error);
  return found == hipGetErrorName(error) ? runtime_name(error).c_str() : found;
}

}  // namespace simcuda
