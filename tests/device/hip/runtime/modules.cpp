#include "modules.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "contexts.hpp"
#include "devices.hpp"
#include "faults.hpp"
#include "gil.hpp"
#include "schedule.hpp"

namespace simhip {

Library::~Library() { dlclose(handle_); }

void* Library::symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }

namespace {

const char* for_ever(const std::string& name) {  // under the device's lock
  static auto* names = new std::set<std::string>;
  return names->insert(name).first->c_str();
}

constexpr const char* kFile = "/simhip-module-";

bool is_of_this_host(const Elf64_Ehdr& head) {
  return std::memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_machine == EM_X86_64;
}

bool write_all(int file, const char* bytes, std::size_t size) {
  while (size != 0) {
    const ssize_t written = write(file, bytes, size);
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

// The loader tells libraries apart by their files' names, so each has one of its own for a moment.
void* load(const char* bytes, std::size_t size) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + kFile + "XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) {
    say("a module cannot be written to " + path);
    return nullptr;
  }
  const bool written = write_all(file, bytes, size);
  close(file);
  void* handle = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (handle == nullptr) say(written ? std::string(dlerror()) : "a module cannot be written to " + path);
  unlink(path.c_str());
  return handle;
}

}  // namespace

bool is_variable(const void* pointer) {
  Dl_info info;
  return dladdr(pointer, &info) != 0 && std::strstr(info.dli_fname, kFile) != nullptr;
}

namespace {

Module* module_of(hipModule_t handle) { return reinterpret_cast<Module*>(handle); }

Function* find_function(Module& module, const std::string& name) {
  auto found = module.functions.find(name);
  if (found != module.functions.end()) return found->second.get();
  const auto* kernel = static_cast<const SimKernel*>(module.library->symbol("simk_" + name));
  if (kernel == nullptr) return nullptr;
  auto function = std::make_unique<Function>(Function{module.library, for_ever(name), kernel});
  return module.functions.emplace(name, std::move(function)).first->second.get();
}

}  // namespace

}  // namespace simhip

using simhip::module_of;
using simhip::note;

extern "C" {

hipError_t hipModuleLoadData(hipModule_t* out, const void* image) {
  simhip::refuse_gil(__func__);
  if (const hipError_t error = simhip::enter(simhip::current_device); error != hipSuccess) return error;
  const auto& head = *static_cast<const Elf64_Ehdr*>(image);
  if (!simhip::is_of_this_host(head)) return note(hipErrorInvalidImage);
  const std::size_t size = head.e_shoff + std::size_t{head.e_shnum} * head.e_shentsize;
  void* handle = simhip::load(static_cast<const char*>(image), size);
  if (handle == nullptr) return note(hipErrorInvalidImage);
  auto module = std::make_unique<simhip::Module>();
  module->library = std::make_shared<simhip::Library>(handle);
  *out = reinterpret_cast<hipModule_t>(module.release());
  return hipSuccess;
}

hipError_t hipModuleLoad(hipModule_t* out, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return note(hipErrorFileNotFound);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < sizeof(Elf64_Ehdr)) return note(hipErrorInvalidImage);
  return hipModuleLoadData(out, bytes.data());
}

hipError_t hipModuleUnload(hipModule_t handle) {
  simhip::refuse_gil(__func__);
  delete module_of(handle);
  return hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t* out, hipModule_t handle, const char* name) {
  const simhip::Lock lock(simhip::machine().mutex);
  simhip::Function* function = simhip::find_function(*module_of(handle), name);
  if (function == nullptr) return note(hipErrorNotFound);
  *out = reinterpret_cast<hipFunction_t>(function);
  return hipSuccess;
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t* out, std::size_t* size, hipModule_t handle, const char* name) {
  const simhip::Library& library = *module_of(handle)->library;
  void* found = library.symbol(std::string("simg_") + name);
  found = found != nullptr ? *static_cast<void**>(found) : library.symbol(name);
  if (found == nullptr) return note(hipErrorNotFound);
  Dl_info info;
  ElfW(Sym)* symbol = nullptr;
  dladdr1(found, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT);
  *out = found;
  if (size != nullptr) *size = symbol != nullptr ? symbol->st_size : 0;
  return hipSuccess;
}

hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute what, hipFunction_t) {
  *value = what == HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return hipSuccess;
}

}  // extern "C"
