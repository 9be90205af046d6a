// Kernels that were compiled for a device when a library was made (CuPy's sort, for one): they cannot run here, and say
// so. The names are those that HIP's compiler calls for its <<<>>>.
#include <map>
#include <string>

#include "faults.hpp"

namespace simhip {

namespace {

std::map<const void*, std::string>& names() {  // filled when libraries are loaded, one after the other
  static auto* all = new std::map<const void*, std::string>;
  return *all;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;
  hipStream_t stream = nullptr;
};
thread_local Configuration configuration;

}  // namespace

}  // namespace simhip

using simhip::configuration;
using simhip::note;

extern "C" {

void** __hipRegisterFatBinary(const void*) {
  static void* handle = nullptr;
  return &handle;
}

void __hipUnregisterFatBinary(void**) {}

void __hipRegisterFunction(void**, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*,
                           int*) {
  simhip::names()[host] = name;
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, hipStream_t stream) {
  configuration = {grid, block, shared, stream};
  return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, hipStream_t* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *stream = configuration.stream;
  return hipSuccess;
}

hipError_t hipLaunchKernel(const void* host, dim3, dim3, void**, std::size_t, hipStream_t) {
  const auto found = simhip::names().find(host);
  const std::string name = found != simhip::names().end() ? found->second.substr(0, 200) : "a kernel";
  simhip::say("cannot run what was compiled for a device when its library was made: " + name);
  return note(hipErrorNotSupported);
}

}  // extern "C"
