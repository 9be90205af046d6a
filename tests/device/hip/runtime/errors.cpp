#include "contexts.hpp"
#include "devices.hpp"
#include "faults.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

thread_local hipError_t last_error = hipSuccess;

}  // namespace

hipError_t note(hipError_t error) {
  if (error == hipSuccess) return error;
  last_error = error;
  if (settings().trace) say(std::string("a call returns ") + hipGetErrorName(error));
  return error;
}

}  // namespace simhip

using simhip::last_error;

extern "C" {

hipError_t hipGetLastError() {
  const hipError_t error = last_error;
  last_error = simhip::refuse_lost(simhip::current_device);  // an error that stays
  return error;
}

hipError_t hipPeekAtLastError() { return last_error; }

const char* hipGetErrorName(hipError_t error) {
  switch (error) {
#define SIMHIP_NAME(name) \
  case name: return #name;
    SIMHIP_NAME(hipSuccess)
    SIMHIP_NAME(hipErrorInvalidValue)
    SIMHIP_NAME(hipErrorOutOfMemory)
    SIMHIP_NAME(hipErrorInvalidConfiguration)
    SIMHIP_NAME(hipErrorNoDevice)
    SIMHIP_NAME(hipErrorInvalidDevice)
    SIMHIP_NAME(hipErrorInvalidImage)
    SIMHIP_NAME(hipErrorInvalidContext)
    SIMHIP_NAME(hipErrorFileNotFound)
    SIMHIP_NAME(hipErrorInvalidHandle)
    SIMHIP_NAME(hipErrorIllegalState)
    SIMHIP_NAME(hipErrorNotFound)
    SIMHIP_NAME(hipErrorNotReady)
    SIMHIP_NAME(hipErrorIllegalAddress)
    SIMHIP_NAME(hipErrorPeerAccessAlreadyEnabled)
    SIMHIP_NAME(hipErrorPeerAccessNotEnabled)
    SIMHIP_NAME(hipErrorContextIsDestroyed)
    SIMHIP_NAME(hipErrorNotSupported)
    SIMHIP_NAME(hipErrorStreamCaptureUnsupported)
    SIMHIP_NAME(hipErrorStreamCaptureInvalidated)
    SIMHIP_NAME(hipErrorStreamCaptureMerge)
    SIMHIP_NAME(hipErrorStreamCaptureUnmatched)
    SIMHIP_NAME(hipErrorStreamCaptureUnjoined)
    SIMHIP_NAME(hipErrorStreamCaptureIsolation)
    SIMHIP_NAME(hipErrorStreamCaptureImplicit)
    SIMHIP_NAME(hipErrorCapturedEvent)
    SIMHIP_NAME(hipErrorStreamCaptureWrongThread)
    SIMHIP_NAME(hipErrorUnknown)
#undef SIMHIP_NAME
    default: return "hipError of another number";
  }
}

const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipErrorOutOfMemory: return "out of memory";
    case hipErrorInvalidValue: return "invalid argument";
    case hipErrorNotSupported: return "the simulated device does not have this";
    case hipErrorUnknown: return "a wait that cannot end; standard error says which";
    default: return hipGetErrorName(error);
  }
}

}  // extern "C"
