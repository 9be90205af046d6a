#include "cuda_errors.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <exception>
#include <typeinfo>

namespace stowplan::allocator {

namespace {

// c10::OutOfMemoryError, made and thrown by symbols: nothing is linked with PyTorch. It is a c10::Error with a table of
// virtual functions of its own; its constructor is inline in PyTorch 2.11.
constexpr const char* kConstructor =
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kType = "_ZTIN3c1016OutOfMemoryErrorE";
constexpr const char* kVirtual = "_ZTVN3c1016OutOfMemoryErrorE";
constexpr const char* kLibraries[] = {"libc10.so", "libc10_cuda.so"};
constexpr std::size_t kRoom = 1024;  // for an object of some 150 bytes, whatever the version

struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

using Constructor = void (*)(void* self, SourceLocation, std::string);

void destroy(void* error) { static_cast<std::exception*>(error)->~exception(); }  // a virtual one

void* symbol(const char* name) {
  void* found = nullptr;
  for (const char* library : kLibraries) {
    void* torch = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (torch == nullptr) continue;
    if (found == nullptr) found = dlsym(torch, name);
    dlclose(torch);  // one reference less; it stays
  }
  return found;
}

}  // namespace

void throw_out_of_memory(const std::string& text) {
  const auto construct = reinterpret_cast<Constructor>(symbol(kConstructor));
  auto* type = static_cast<std::type_info*>(symbol(kType));
  auto* functions = static_cast<std::uintptr_t*>(symbol(kVirtual));
  if (construct != nullptr && type != nullptr && functions != nullptr) {
    void* error = abi::__cxa_allocate_exception(kRoom);
    construct(error, {"stow_cuda_malloc", "stowplan", 0}, text);
    *static_cast<std::uintptr_t**>(error) = functions + 2;  // behind the offset to the top, and the type
    abi::__cxa_throw(error, type, destroy);
  }
  throw CudaFailure(text);
}

}  // namespace stowplan::allocator
