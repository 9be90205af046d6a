// Handles of hipBLAS.
#include "handle.hpp"

using simhip::blas::Handle;
using simhip::blas::success;

extern "C" {

int hipblasCreate(Handle** handle) {
  *handle = new Handle;
  return success;
}

int hipblasDestroy(Handle* handle) {
  delete handle;
  return success;
}

int hipblasSetStream(Handle* handle, hipStream_t stream) {
  handle->stream = stream;
  return success;
}

int hipblasGetStream(Handle* handle, hipStream_t* stream) {
  *stream = handle->stream;
  return success;
}
}
