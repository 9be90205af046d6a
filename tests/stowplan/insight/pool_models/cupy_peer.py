"""CuPy's own memory pool without a GPU: ``python -m tests.stowplan.insight.pool_models.cupy_peer``.

All that CuPy's `MemoryPool` asks the driver for is which device is current and how many there are; the memory comes
from an allocator that the user may choose. So both questions get an answer of ours, before CuPy is imported, and the
allocator hands out addresses of which nobody will ever read a byte. Everything else is CuPy's.

Reads from standard input lists of ``[block, size]`` (a size of -1: a free), one list a line; prints for each of them
the pool's ``total_bytes()`` after every request.
"""

from __future__ import annotations

import ctypes
import json
import sys
from itertools import count
from typing import Any

ANSWERS = {"getDevice": 0, "getDeviceCount": 1}


def answer_for_the_driver() -> list[Any]:
    """Let CuPy's modules, which look these functions up when they are imported, find ours. Keep what is returned."""
    from cupy_backends.cuda.api import runtime

    assert "cupy.cuda.memory" not in sys.modules
    api = ctypes.pythonapi
    name_of, new = api.PyCapsule_GetName, api.PyCapsule_New
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    kept: list[Any] = []
    for function, answer in ANSWERS.items():
        name = name_of(runtime.__pyx_capi__[function])
        assert name == b"int (int __pyx_skip_dispatch)", name
        ours = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda _, answer=answer: answer)
        kept += [name, ours]
        runtime.__pyx_capi__[function] = new(ctypes.cast(ours, ctypes.c_void_p), name, None)
    return kept


def totals(cupy: Any, program: list[list[int]]) -> list[int]:
    """Run a program through a new pool; return its ``total_bytes()`` after every request."""
    addresses = count(2**20, 2**40)

    def device(size: int) -> Any:
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(next(addresses), size, None, device_id=0), 0)

    pool = cupy.cuda.MemoryPool(device)
    live: dict[int, Any] = {}
    reserved = []
    for block, size in program:
        if size < 0:
            live.pop(block, None)  # a block of the step before the first one
        else:
            live[block] = pool.malloc(size)
        reserved.append(pool.total_bytes())
    return reserved


def main() -> None:
    kept = answer_for_the_driver()
    import cupy

    for line in sys.stdin:
        print(json.dumps(totals(cupy, json.loads(line))))
    assert kept


if __name__ == "__main__":
    main()
