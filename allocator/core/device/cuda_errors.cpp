#include "cuda_errors.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <exception>
#include <typeinfo>

namespace stowplan::allocator {

namespace {

// c10::OutOfMemoryError, constructed and thrown by its symbols: nothing is linked with PyTorch.
constexpr const char* kConstructor =
    "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kType = "_ZTIN3c1016OutOfMemoryErrorE";
constexpr std::size_t kRoom = 1024;  // for an object of some 150 bytes, whatever the version

struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

using Constructor = void (*)(void* self, SourceLocation, std::string);

void destroy(void* error) { static_cast<std::exception*>(error)->~exception(); }  // a virtual one

}  // namespace

void throw_out_of_memory(const std::string& text) {
  if (void* torch = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD)) {
    const auto construct = reinterpret_cast<Constructor>(dlsym(torch, kConstructor));
    auto* type = static_cast<std::type_info*>(dlsym(torch, kType));
    dlclose(torch);  // one reference less; it stays
    if (construct != nullptr && type != nullptr) {
      void* error = abi::__cxa_allocate_exception(kRoom);
      construct(error, {"stow_cuda_malloc", "stowplan", 0}, text);
      abi::__cxa_throw(error, type, destroy);
    }
  }
  throw CudaFailure(text);
}

}  // namespace stowplan::allocator
