#include "gil.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "faults.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

// How often each call was made that may wait.
struct Calls {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> counts;
};
Calls& calls() {
  static Calls one;
  return one;
}

}  // namespace

bool& in_host_function() {
  thread_local bool is_in = false;
  return is_in;
}

void refuse_in_host_function(const char* call) {
  if (in_host_function()) fault(std::string("a host function calls ") + call);
}

void refuse_gil(const char* call) {
  {
    const std::lock_guard<std::mutex> lock(calls().mutex);
    ++calls().counts[call];
  }
  using Ask = int (*)();
  static const auto is_running = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  static const auto is_held = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (!settings().gil || is_held == nullptr || is_running() == 0 || is_held() == 0) return;
  fault(std::string("calls ") + call + ", which may wait, and holds Python's GIL");
}

}  // namespace simhip

extern "C" std::uint64_t simhip_calls(const char* name) {
  const std::lock_guard<std::mutex> lock(simhip::calls().mutex);
  return simhip::calls().counts[name];
}
