// Eight threads at the simulated runtime at once, for sanitizer builds of it: Python's threads hold each other up too
// much to find a race. Each has a stream of its own and fills, copies and frees; what it reads back has to be right.
//
//   g++ -std=c++17 -fsanitize=thread runtime_stress.cpp hip/runtime/*.cpp ... && SIMHIP_SCHEDULE=eager ./a.out
#include <array>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "hip/runtime/hip.hpp"

namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 200;
constexpr std::size_t kSize = 4096;

void must(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  std::fprintf(stderr, "runtime_stress: %s returned %s\n", what, hipGetErrorName(error));
  std::exit(1);
}
#define MUST(call) must(call, #call)

void read_back(const void* from, int value, hipStream_t stream) {
  std::array<unsigned char, kSize> bytes{};
  MUST(hipMemcpyAsync(bytes.data(), from, kSize, hipMemcpyDeviceToHost, stream));
  MUST(hipStreamSynchronize(stream));
  for (const unsigned char byte : bytes) {
    if (byte == value) continue;
    std::fprintf(stderr, "runtime_stress: %d where %d was written\n", byte, value);
    std::exit(1);
  }
}

void round(hipStream_t stream, hipStream_t other, hipEvent_t event, int value) {
  void* kept = nullptr;
  void* ordered = nullptr;
  MUST(hipMalloc(&kept, kSize));
  MUST(hipMallocAsync(&ordered, kSize, stream));
  MUST(hipMemsetAsync(ordered, value, kSize, stream));
  MUST(hipEventRecord(event, stream));
  MUST(hipStreamWaitEvent(other, event, 0));
  MUST(hipMemcpyAsync(kept, ordered, kSize, hipMemcpyDeviceToDevice, other));
  MUST(hipEventRecord(event, other));
  MUST(hipStreamWaitEvent(stream, event, 0));
  MUST(hipFreeAsync(ordered, stream));
  const hipError_t asked = hipEventQuery(event);
  if (asked != hipErrorNotReady) must(asked, "hipEventQuery");
  read_back(kept, value, other);
  MUST(hipFree(kept));
}

void work(int thread) {
  hipStream_t stream = nullptr;
  hipEvent_t event = nullptr;
  MUST(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  MUST(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  for (int i = 0; i < kRounds; ++i) round(stream, hipStreamPerThread, event, (thread + i) % 256);
  MUST(hipEventDestroy(event));
  MUST(hipStreamDestroy(stream));
}

}  // namespace

int main() {
  std::size_t before = 0;
  std::size_t free = 0;
  std::size_t total = 0;
  MUST(hipMemGetInfo(&before, &total));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  MUST(hipDeviceSynchronize());
  MUST(hipMemGetInfo(&free, &total));
  if (free != before) std::fprintf(stderr, "runtime_stress: %zu bytes are lost\n", before - free);
  return free == before ? 0 : 1;
}
