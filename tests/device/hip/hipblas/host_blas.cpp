#include "host_blas.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace simhip::blas {

namespace {

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "simhip: %s\n", why.c_str());
  std::abort();
}

int take_openblas(dl_phdr_info* library, std::size_t, void* path) {
  if (std::strstr(library->dlpi_name, "openblas64_") == nullptr) return 0;
  *static_cast<std::string*>(path) = library->dlpi_name;
  return 1;
}

void* library() {
  std::string path;
  dl_iterate_phdr(&take_openblas, &path);
  void* found = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW);
  if (found == nullptr) stop("no BLAS is loaded; expected the OpenBLAS of a NumPy from PyPI, imported before");
  return found;
}

}  // namespace

void* function(const std::string& name) {
  static void* const blas = library();
  for (const char* prefix : {"scipy_cblas_", "cblas_"}) {
    if (void* found = dlsym(blas, (prefix + name + "64_").c_str())) return found;
  }
  stop("NumPy's OpenBLAS has no " + name);
}

}  // namespace simhip::blas
