// What a program must not do on a device, and what a call answers.
//
// A fault is reported with the stream, the operation and the allocation, and stops the process, as a wrong value would
// come later and elsewhere. SIMHIP_FAULTS=count is for tests of the reports: the operation is left out and counted.
// SIMHIP_FAULTS=stick is for tests of what a program does then: the device's context is lost, as CUDA's would be.
#pragma once

#include <cstdint>
#include <string>

#include "hip.hpp"

namespace simhip {

// Remembers a thread's error for hipGetLastError, and returns it.
hipError_t note(hipError_t error);

// Reports a fault of the work that this thread runs, or of the host's code where it runs none. Under no lock.
void fault(const std::string& text);

// Answers a call that names what was destroyed, or was never made: what CUDA does then is undefined, so it is a fault.
hipError_t refuse_dead(const char* what, hipError_t error);

// One line on standard error.
void say(const std::string& text);

// Reports what touches memory that it may not touch, before the process ends by the signal.
void watch_for_bad_accesses();

// "0x6b3d00000000"
std::string hex(std::uintptr_t address);

}  // namespace simhip
