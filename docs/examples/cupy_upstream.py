"""An upstream resource of your own. This one hands out host memory, and so runs without a device."""

import ctypes

import cupy
import numpy as np

from stowplan import CupyPool


def host_memory(size):
    """Return `size` bytes as CuPy's allocators do: a `MemoryPointer`. They are free when their owner dies."""
    owner = np.empty(size + 512, dtype=np.uint8)
    aligned = -owner.ctypes.data % 512 + owner.ctypes.data
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(aligned, size, owner, 0), 0)


pool = CupyPool(host_memory, device=0)  # naming the device keeps it from asking for the current one
with cupy.cuda.using_allocator(pool.malloc):
    for _number in range(10):
        with pool.step():
            a = cupy.empty(5000, dtype=cupy.float32)
            b = cupy.empty(3000, dtype=cupy.float32)
            ctypes.memset(a.data.ptr, 0, a.nbytes)
            del a, b
        pool.wait()

print(pool.report())
assert pool.stats.replayed == 14
