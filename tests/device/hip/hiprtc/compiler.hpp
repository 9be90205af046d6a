// The host's compiler, and what it has compiled: a shared library for each kernel, kept between runs.
//
// A library's name is a hash of all that it was made from: the text, the headers passed with it, the options, and the
// state of the toolchain (the compiler's version, our headers and CuPy's), which the build leaves in a file. So a
// second run of a program compiles nothing. Only headers that the program itself finds by -I are not looked into, as in
// CuPy's own cache. Processes may share the folder: a library appears in it by a rename.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace simhip {

struct Compilation {
  std::string text;
  std::string name;                                          // of the file, as the compiler's messages show it
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  std::vector<std::string> options;
};

struct Compiled {
  bool done;
  std::string code;  // the shared library's bytes
  std::string log;
};

Compiled compile(const Compilation& wanted);

}  // namespace simhip

// How many kernels this process has had compiled.
extern "C" unsigned long long simhip_compilations();
