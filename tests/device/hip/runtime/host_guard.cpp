#include "host_guard.hpp"

#include <mutex>

#include "memory.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

std::mutex mutex;
int users = 0;

void change(int by) {
  const std::lock_guard<std::mutex> guard(mutex);
  const bool was_open = users > 0;
  users += by;
  if (was_open != (users > 0)) memory().open_all(users > 0);
}

}  // namespace

DeviceAccess::DeviceAccess() {
  if (settings().refuse_host) change(1);
}

DeviceAccess::~DeviceAccess() {
  if (settings().refuse_host) change(-1);
}

}  // namespace simhip
