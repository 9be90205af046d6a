// Modules: shared libraries of the host, made of kernels by hiprtc. What is queued holds its library.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "simhip_abi.h"

namespace simhip {

class Library {
 public:
  explicit Library(void* handle) : handle_(handle) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();
  void* symbol(const std::string& name) const;

 private:
  void* handle_;
};

struct Function {
  std::shared_ptr<Library> library;
  const char* name;  // kept for ever: work is reported by it after its module is gone
  const SimKernel* kernel;
};

struct Module {
  std::shared_ptr<Library> library;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

// Whether an address is that of a variable of a module's: memory of the device, which no call has allocated.
bool is_variable(const void* pointer);

}  // namespace simhip
