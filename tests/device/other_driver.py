"""The driver's functions as a pool has them (core/device/cuda_api.hpp), but for some that do nothing."""

from __future__ import annotations

import ctypes
import re
from ctypes import CFUNCTYPE, c_bool, c_int, c_void_p
from pathlib import Path

HEADER = next((Path(__file__).resolve().parents[2] / "allocator" / "core").rglob("cuda_api.hpp"))
FUNCTIONS = re.findall(r"^ +function\(\w+, (\w+), (\w+), (\w+),", HEADER.read_text("utf-8"), re.MULTILINE)
LIBRARIES = ("libamdhip64.so.7", "libcuda.so.1")


class Table(ctypes.Structure):
    """A pointer for each function, in the header's order."""

    _fields_ = (
        *((name, c_void_p) for name, *_ in FUNCTIONS),
        ("error_string", c_void_p),
        ("is_virtual", c_bool),
    )


def pointer(function: object) -> int | None:
    """Return a function's address."""
    return ctypes.cast(function, c_void_p).value  # type: ignore[arg-type]


@CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
def nothing(*_: int | None) -> int:
    """Succeed."""
    return 0


@CFUNCTYPE(c_int, c_void_p, c_void_p)
def not_capturing(stream: int | None, status: int) -> int:
    """Say that a stream is not being captured."""
    c_int.from_address(status).value = 0
    return 0


def driver_without(*names: str) -> int:
    """Return the address of a table in which these functions do nothing."""
    loaded = (name for name in LIBRARIES if _is_loaded(name))
    library = ctypes.CDLL(name := next(loaded))
    table = Table(is_virtual=True)
    for member, cuda, hip in FUNCTIONS:
        found = getattr(library, f"cu{cuda}" if "cuda" in name else f"hip{hip}", None)
        setattr(table, member, None if found is None else pointer(found))
    for member in names:
        stub = not_capturing if member == "stream_is_capturing" else nothing
        setattr(table, member, pointer(stub))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(table))  # for ever, as pools may be
    return ctypes.addressof(table)


def _is_loaded(name: str) -> bool:
    return any(name.partition(".so")[0] in line for line in Path("/proc/self/maps").read_text().splitlines())
