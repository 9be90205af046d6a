// HIP's public names, on the platform that the simulated device says it is.
#pragma once

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1  // NOLINT(bugprone-reserved-identifier): HIP's own
#endif
#include <hip/hip_runtime_api.h>
