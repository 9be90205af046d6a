#include "contexts.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "devices.hpp"
#include "faults.hpp"
#include "memory.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

enum class Context : std::uint8_t { none, active, lost };

std::array<std::atomic<Context>, 64> contexts = {};

std::atomic<Context>& context_of(int device) { return contexts[static_cast<std::size_t>(device)]; }

}  // namespace

hipError_t refuse_lost(int device) {
  return context_of(device) == Context::lost ? note(hipErrorIllegalAddress) : hipSuccess;
}

void lose_context(int device) { context_of(device) = Context::lost; }

hipError_t enter(int device) {
  static std::mutex mutex;
  if (context_of(device) == Context::none) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (context_of(device) == Context::none) {
      if (!memory().add_context(device)) return note(hipErrorOutOfMemory);
      context_of(device) = Context::active;
    }
  }
  return refuse_lost(device);
}

}  // namespace simhip

extern "C" {

hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned* flags, int* active) {
  if (!simhip::is_device(device)) return simhip::note(hipErrorInvalidDevice);
  *flags = 0;
  *active = simhip::context_of(device) != simhip::Context::none ? 1 : 0;
  return hipSuccess;
}

// On which devices the process has a context: a bit for each.
std::uint64_t simhip_contexts() {
  std::uint64_t made = 0;
  for (int device = 0; device < simhip::settings().devices; ++device) {
    if (simhip::context_of(device) != simhip::Context::none) made |= std::uint64_t{1} << device;
  }
  return made;
}

}  // extern "C"
