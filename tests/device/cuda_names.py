"""CUDA's names over the simulated device, for CuPy's build for CUDA: most of them are jumps to HIP's functions.

CuPy 12.3 is the last one whose wheel finds the CUDA libraries when it is loaded; later ones have the runtime linked in.
HIP has CUDA's parameters, handles and numbers of errors, so most of CUDA's names need one jump each. What has other
values, another layout or other parameters stands in ``cuda/``, a file for each library. Every other name that the
wheel wants gets a stub.
"""

from __future__ import annotations

import re

DRIVER = "libcuda.so.1"
LIBRARIES = {  # as those for ROCm: how a library's names begin, and the status by which it says "not supported"
    "cuda": ("libcudart.so.12", 801),
    "__cuda": ("libcudart.so.12", 801),
    "cu": (DRIVER, 801),
    "nvrtc": ("libnvrtc.so.12", 11),
    "cublas": ("libcublas.so.12", 15),
    "curand": ("libcurand.so.10", 999),
    "cusparse": ("libcusparse.so.12", 10),
    "cusolver": ("libcusolver.so.11", 9),
    "cufft": ("libcufft.so.11", 16),
}
SHIMS = {  # a library, its file in ``cuda/``, the library that it jumps to, and how names begin in both
    "libcudart.so.12": ("cudart", "libamdhip64.so.7", "cuda", "hip"),
    DRIVER: ("driver", "libamdhip64.so.7", "cu", "hip"),
    "libnvrtc.so.12": ("nvrtc", "libhiprtc.so.7", "nvrtc", "hiprtc"),
    "libcublas.so.12": ("cublas", "libhipblas.so.3", "cublas", "hipblas"),
    "libcurand.so.10": ("curand", "libhiprand.so.1", "curand", "hiprand"),
}
RENAMED = {
    "cudaHostAlloc": "hipHostMalloc",
    "cudaFreeHost": "hipHostFree",
    "cuLaunchKernel": "hipModuleLaunchKernel",
    "cuMemAlloc": "hipMalloc",
    "cuMemFree": "hipFree",
    "cuEventCreate": "hipEventCreateWithFlags",
    "cuCtxSynchronize": "hipDeviceSynchronize",
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuStreamGetCaptureInfo": "hipStreamGetCaptureInfo_v2",
    "nvrtcGetCUBIN": "hiprtcGetCode",
    "nvrtcGetCUBINSize": "hiprtcGetCodeSize",
    "cublasSgemmEx": "hipblasGemmEx",
}
LOOKED_UP = """
cuThreadExchangeStreamCaptureMode cuCtxSynchronize cuDeviceGetCount
cuMemAlloc_v2 cuMemFree_v2 cuMemGetInfo_v2 cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap
cuMemUnmap cuMemSetAccess cuMemGetAllocationGranularity cuDeviceCanAccessPeer cuStreamIsCapturing cuStreamQuery
cuStreamGetCaptureInfo_v2 cuUserObjectCreate cuGraphRetainUserObject cuStreamWaitEvent
cuEventCreate cuEventDestroy_v2 cuEventQuery cuEventRecord cuEventSynchronize
"""
"""What programs look up besides the names that the wheel wants, as CUDA's libraries export them."""

HEADERS = ("cuda.h", "cuda_fp16.h", "cuda_runtime.h", "cuda_runtime_api.h", "math_constants.h")
"""What kernels include; the simulated device's header, which comes before each of them, has it all."""

MACRO = """\
.section .note.GNU-stack,"",@progbits
.text
.macro jump name, target, first=0, second=0
.globl \\name
.type \\name, @function
\\name:
.if \\first
  add $\\first, %esi
.endif
.if \\second
  add $\\second, %edx
.endif
  jmp \\target@PLT
.endm
"""


def added(name: str) -> tuple[int, int]:
    """Return what to add to the second and third argument.

    Operations N, T, C are 0, 1, 2 in cuBLAS and 111, 112, 113 in hipBLAS.
    """
    return (111, 111) if re.match("cublas.*[Gg]emm", name) else (0, 0)


def target_of(name: str, library: str) -> str:
    """Return the function of HIP's that one of CUDA's names is."""
    _, _, theirs, ours = SHIMS[library]
    plain = name.removesuffix("_v2")
    return RENAMED.get(plain, plain.replace(theirs, ours, 1))


def jumps(library: str, simulated: set[str], own: set[str], wanted: set[str]) -> str:
    """Return the assembler's source of a library's jumps.

    Parameters
    ----------
    simulated, own
        The functions of HIP's library, and those that ``cuda/`` has for this one.
    wanted
        What the wheel wants of it.
    """
    names = wanted | {name for name in LOOKED_UP.split() if library_of(name, LIBRARIES) == library}
    pairs = [(name, target_of(name, library)) for name in sorted(names - own)]
    return MACRO + "".join(
        f"jump {name}, {target}, {', '.join(map(str, added(name)))}\n"
        for name, target in pairs
        if target in simulated
    )


def library_of(name: str, libraries: dict[str, tuple[str, int]]) -> str | None:
    """Return the library that a name belongs to: that of the longest beginning, behind which a new word begins."""
    found = [
        prefix
        for prefix in libraries
        if name.startswith(prefix) and (prefix.endswith("_") or not name[len(prefix) :][:1].islower())
    ]
    return libraries[max(found, key=len)][0] if found else None
