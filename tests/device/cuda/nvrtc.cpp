// NVRTC: CuPy asks for PTX only to learn the compiler's version; a kernel's code is a shared library of the host's.
#include <cstddef>
#include <cstring>
#include <string>

extern "C" {

const char* hiprtcGetErrorString(int result);

const char* nvrtcGetErrorString(int result) {
  thread_local std::string text;
  text = std::string("NV") + (hiprtcGetErrorString(result) + std::strlen("HIP"));
  return text.c_str();
}

int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 2;
  return 0;
}

static const char kText[] = "// simulated\n";

int nvrtcGetPTXSize(void*, std::size_t* size) {
  *size = sizeof kText;
  return 0;
}

int nvrtcGetPTX(void*, char* out) {
  std::memcpy(out, kText, sizeof kText);
  return 0;
}
}
