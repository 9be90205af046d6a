// A kernel's source, as CuPy makes it for a device, turned into what a compiler of the host takes.
//
//     extern __shared__ float s[];                    ->  float* const s = (float*)simhip_ctx->shared;
//     extern "C" __global__ void k(float* x) {...}    ->  the same, and SIMHIP_KERNEL(simk_k, &k, 0) at the end
//
// The rest of the language is macros and functions of simhip_device.h. What a kernel needs of its threads is known by
// the words in its source: one with barriers gets a stack for each thread of a block, and one that only loops over its
// elements (CUPY_FOR) runs as one thread that does the work of all. Linear in the source's length.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace simhip {

struct KernelSource {
  std::string text;
  std::map<std::string, std::string> lowered;  // a name expression -> the name that its kernel or variable is found by
};

KernelSource for_host(const std::string& source, const std::vector<std::string>& expressions);

// What in the source cannot be run on a host, in one sentence; empty where there is nothing.
std::string refusal(const std::string& source);

}  // namespace simhip
