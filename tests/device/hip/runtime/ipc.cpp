// Memory of another process: a block of hipMalloc's. Virtual and stream-ordered memory cannot be had so, as in CUDA.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "contexts.hpp"
#include "devices.hpp"
#include "faults.hpp"
#include "memory.hpp"
#include "schedule.hpp"

namespace simhip {

namespace {

struct Shared {
  pid_t process;
  int file;
  int device;
  std::size_t size;
};
static_assert(sizeof(Shared) <= sizeof(hipIpcMemHandle_t));

hipError_t share(Lock& lock, const void* pointer, Shared& shared) {
  const std::optional<Block> block = memory().find(pointer);
  if (!block || block->kind != Kind::device) return note(hipErrorInvalidValue);
  if (const hipError_t error = wait_for_device(lock, block->device); error != hipSuccess) return error;
  shared = {getpid(), memory().share(block->base), block->device, block->size};
  return shared.file >= 0 ? hipSuccess : note(hipErrorOutOfMemory);
}

hipError_t open_shared(const Shared& shared, void** out) {
  if (shared.process == getpid()) return note(hipErrorInvalidContext);
  if (!is_device(shared.device)) return note(hipErrorInvalidDevice);
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  return file >= 0 ? note(memory().open(file, shared.device, shared.size, out)) : note(hipErrorInvalidValue);
}

hipError_t close_shared(Lock& lock, const void* pointer) {
  const std::optional<Block> block = memory().find(pointer);
  if (!block || block->kind != Kind::opened) return note(hipErrorInvalidValue);
  if (const hipError_t error = wait_for_device(lock, block->device); error != hipSuccess) return error;
  memory().end_free(pointer);
  return hipSuccess;
}

}  // namespace

}  // namespace simhip

using simhip::Lock;
using simhip::machine;

extern "C" {

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* pointer) {
  simhip::Shared shared{};
  Lock lock(machine().mutex);
  const hipError_t error = simhip::share(lock, pointer, shared);
  std::memcpy(handle, &shared, sizeof shared);
  return error;
}

hipError_t hipIpcOpenMemHandle(void** pointer, hipIpcMemHandle_t handle, unsigned) {
  if (const hipError_t error = simhip::enter(simhip::current_device); error != hipSuccess) return error;
  simhip::Shared shared{};
  std::memcpy(&shared, &handle, sizeof shared);
  return simhip::open_shared(shared, pointer);
}

hipError_t hipIpcCloseMemHandle(void* pointer) {
  Lock lock(machine().mutex);
  return simhip::close_shared(lock, pointer);
}

}  // extern "C"
