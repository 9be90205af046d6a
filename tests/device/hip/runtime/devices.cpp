// Devices, what they can, and peers.
#include "devices.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "capture.hpp"
#include "contexts.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "memory.hpp"
#include "pools.hpp"
#include "settings.hpp"
#include "simhip_abi.h"

namespace simhip {

thread_local int current_device = 0;

bool is_device(int device) { return device >= 0 && device < settings().devices; }

namespace {

constexpr int kVersion = 70000000;
constexpr int kThreads = 1024;  // of a block
constexpr int kProcessors = 8;
constexpr std::size_t kShared = 65536;  // bytes of a block
constexpr int kMostBlocks = 2147483647;

hipDeviceProp_tR0600 properties(int device) {
  hipDeviceProp_tR0600 p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "simulated device %d", device);
  std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "gfx900:simhip");
  p.totalGlobalMem = settings().memory;
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = p.maxSharedMemoryPerMultiProcessor = kShared;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = SIMHIP_LANES;
  p.maxThreadsPerBlock = kThreads;
  std::fill_n(p.maxThreadsDim, 3, kThreads);
  std::fill_n(p.maxGridSize, 3, kMostBlocks);
  p.clockRate = p.memoryClockRate = 1000000;
  p.major = 9;
  p.multiProcessorCount = kProcessors;
  p.maxThreadsPerMultiProcessor = 2048;
  p.l2CacheSize = 1 << 20;
  p.concurrentKernels = p.managedMemory = p.unifiedAddressing = p.canMapHostMemory = 1;
  p.concurrentManagedAccess = p.streamPrioritiesSupported = p.asyncEngineCount = 1;
  p.pciBusID = device;
  p.textureAlignment = p.surfaceAlignment = 256;
  p.totalConstMem = p.memPitch = 1U << 30;
  return p;
}

int attribute(hipDeviceAttribute_t what, int device) {
  const hipDeviceProp_tR0600 p = properties(device);
  switch (what) {
    case hipDeviceAttributeComputeCapabilityMajor: return p.major;
    case hipDeviceAttributeComputeCapabilityMinor: return p.minor;
    case hipDeviceAttributeWarpSize: return p.warpSize;
    case hipDeviceAttributeMaxThreadsPerBlock: return p.maxThreadsPerBlock;
    case hipDeviceAttributeMultiprocessorCount: return p.multiProcessorCount;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
    case hipDeviceAttributeManagedMemory:
    case hipDeviceAttributeConcurrentManagedAccess: return 1;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: return static_cast<int>(p.sharedMemPerBlock);
    case hipDeviceAttributeMaxGridDimX:
    case hipDeviceAttributeMaxGridDimY:
    case hipDeviceAttributeMaxGridDimZ: return kMostBlocks;
    case hipDeviceAttributeMemoryPoolsSupported: return settings().memory_pools ? 1 : 0;
    case hipDeviceAttributeVirtualMemoryManagementSupported: return settings().virtual_memory != 0 ? 1 : 0;
    default: return 0;
  }
}

hipError_t synchronize(Lock& lock) {
  if (const hipError_t error = enter(current_device); error != hipSuccess) return error;
  if (const hipError_t error = refuse_unsafe(); error != hipSuccess) return error;
  if (const hipError_t error = refuse_while_capturing(current_device); error != hipSuccess) return error;
  if (const hipError_t error = wait_for_device(lock, current_device); error != hipSuccess) return error;
  trim_pools_after_wait(current_device);
  return hipSuccess;
}

}  // namespace

}  // namespace simhip

using simhip::current_device;
using simhip::is_device;
using simhip::memory;
using simhip::note;
using simhip::settings;

extern "C" {

hipError_t hipGetDeviceCount(int* count) {
  *count = settings().devices;
  return *count != 0 ? hipSuccess : note(hipErrorNoDevice);
}

hipError_t hipGetDevice(int* device) {
  *device = current_device;
  return hipSuccess;
}

hipError_t hipSetDevice(int device) {
  if (!is_device(device)) return note(hipErrorInvalidDevice);
  current_device = device;
  return simhip::enter(device);
}

hipError_t hipDriverGetVersion(int* version) {
  *version = simhip::kVersion;
  return hipSuccess;
}

hipError_t hipRuntimeGetVersion(int* version) {
  *version = simhip::kVersion;
  return hipSuccess;
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device) {
  if (!is_device(device)) return note(hipErrorInvalidDevice);
  *properties = simhip::properties(device);
  return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t what, int device) {
  if (!is_device(device)) return note(hipErrorInvalidDevice);
  *value = simhip::attribute(what, device);
  return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char* id, int length, int device) {
  if (!is_device(device)) return note(hipErrorInvalidDevice);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device);
  return hipSuccess;
}

hipError_t hipDeviceGetByPCIBusId(int* device, const char* id) {
  unsigned domain = 0;
  unsigned bus = 0;
  const bool read = std::sscanf(id, "%x:%x:", &domain, &bus) == 2;  // NOLINT(cert-err34-c): two numbers or none
  if (!read || !is_device(static_cast<int>(bus))) return note(hipErrorInvalidDevice);
  *device = static_cast<int>(bus);
  return hipSuccess;
}

hipError_t hipDeviceSynchronize() {
  simhip::refuse_gil(__func__);
  simhip::Lock lock(simhip::machine().mutex);
  return simhip::synchronize(lock);
}

hipError_t hipDeviceCanAccessPeer(int* can, int device, int other) {
  if (!is_device(device) || !is_device(other)) return note(hipErrorInvalidDevice);
  *can = device != other ? 1 : 0;
  return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int other, unsigned flags) {
  if (flags != 0) return note(hipErrorInvalidValue);
  if (!is_device(other) || other == current_device) return note(hipErrorInvalidDevice);
  if (memory().is_peer(current_device, other)) return note(hipErrorPeerAccessAlreadyEnabled);
  for (const int device : {current_device, other}) {
    if (const hipError_t error = simhip::enter(device); error != hipSuccess) return error;
  }
  memory().set_peer(current_device, other, true);
  return hipSuccess;
}

hipError_t hipDeviceDisablePeerAccess(int other) {
  if (!is_device(other)) return note(hipErrorInvalidDevice);
  if (!memory().is_peer(current_device, other)) return note(hipErrorPeerAccessNotEnabled);
  memory().set_peer(current_device, other, false);
  return hipSuccess;
}

}  // extern "C"
