#include "plan_worth.hpp"

#include <sys/resource.h>

namespace stowplan::allocator {

ProcessUse ProcessUse::now() {
  const auto microseconds = [](const timeval& time) { return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_usec; };
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return {microseconds(use.ru_utime) + microseconds(use.ru_stime), microseconds(use.ru_stime), use.ru_minflt};
}

}  // namespace stowplan::allocator
