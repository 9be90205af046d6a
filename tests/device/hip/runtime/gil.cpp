#include "gil.hpp"

#include <dlfcn.h>

#include <string>

#include "faults.hpp"
#include "settings.hpp"

namespace simhip {

void refuse_gil(const char* call) {
  using Ask = int (*)();
  static const auto is_running = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  static const auto is_held = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (!settings().gil || is_held == nullptr || is_running() == 0 || is_held() == 0) return;
  fault(std::string("calls ") + call + ", which may wait, and holds Python's GIL");
}

}  // namespace simhip
