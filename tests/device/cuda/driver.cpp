// The CUDA driver's functions that are not HIP's by another name: contexts, of which each device has one, and the
// linker.
#include <cstddef>
#include <string>
#include <vector>

#include "cuda_values.hpp"

namespace {

using Context = int;

Context contexts[64];  // their addresses are the handles

thread_local std::vector<int> pushed;  // devices that were current

int device_of(const Context* context) { return static_cast<int>(context - contexts); }

}  // namespace

extern "C" {

hipError_t cuInit(unsigned) { return hipSuccess; }

hipError_t cuDeviceGetAttribute(int* value, int what, int device) { return simcuda::attribute(value, what, device); }

hipError_t cuGetErrorName(hipError_t error, const char** out) {
  thread_local std::string name;
  name = simcuda::driver_name(error);
  *out = name.c_str();
  return hipSuccess;
}

hipError_t cuGetErrorString(hipError_t error, const char** out) {
  *out = simcuda::text(error);
  return hipSuccess;
}

hipError_t cuCtxGetDevice(int* device) { return hipGetDevice(device); }

hipError_t cuCtxGetCurrent(Context** out) {
  int device = 0;
  const hipError_t error = hipGetDevice(&device);
  *out = &contexts[device];
  return error;
}

hipError_t cuCtxSetCurrent(const Context* context) {
  return context != nullptr ? hipSetDevice(device_of(context)) : hipSuccess;
}

hipError_t cuCtxPushCurrent_v2(const Context* context) {
  int device = 0;
  hipGetDevice(&device);
  pushed.push_back(device);
  return cuCtxSetCurrent(context);
}

hipError_t cuCtxPopCurrent_v2(Context** out) {
  if (pushed.empty()) return hipErrorInvalidContext;
  if (out != nullptr) cuCtxGetCurrent(out);
  const int device = pushed.back();
  pushed.pop_back();
  return hipSetDevice(device);
}

hipError_t cuDevicePrimaryCtxRetain(Context** out, int device) {
  *out = &contexts[device];
  return hipSuccess;
}

hipError_t cuDevicePrimaryCtxRelease_v2(int) { return hipSuccess; }

hipError_t cuStreamGetCtx(hipStream_t stream, Context** out) {
  *out = &contexts[hipGetStreamDeviceId(stream)];
  return hipSuccess;
}

hipError_t cuFuncSetAttribute(void*, int, int) { return hipSuccess; }

hipError_t cuLaunchCooperativeKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                     hipStream_t stream, void** arguments) {
  if (grid_x * grid_y * grid_z > 1) return hipErrorNotSupported;  // blocks run one after the other
  return hipModuleLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments,
                               nullptr);
}

// What a linker was given last is what it makes.
hipError_t cuLinkCreate_v2(unsigned, void*, void**, std::vector<char>** out) {
  *out = new std::vector<char>;
  return hipSuccess;
}

hipError_t cuLinkAddData_v2(std::vector<char>* linker, int, const char* data, std::size_t size, const char*, unsigned,
                            void*, void**) {
  linker->assign(data, data + size);
  return hipSuccess;
}

hipError_t cuLinkAddFile_v2(std::vector<char>*, int, const char*, unsigned, void*, void**) { return hipSuccess; }

hipError_t cuLinkComplete(std::vector<char>* linker, void** out, std::size_t* size) {
  *out = linker->data();
  *size = linker->size();
  return hipSuccess;
}

hipError_t cuLinkDestroy(std::vector<char>* linker) {
  delete linker;
  return hipSuccess;
}
}
