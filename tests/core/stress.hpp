// What the stress programs share.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace stress {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::exit(1);
}

inline void require(bool holds, const char* what) {
  if (!holds) fail(std::string("not so: ") + what);
}

}  // namespace stress
