"""Begin this process anew with the library under malloc, which only the dynamic loader can put before the C library.

::

    stowplan run --preload train.py     restart(): LD_PRELOAD=<before>:<library>, _BEFORE=<before>, exec
    stowplan run --preload train.py     restart(): the library is there; LD_PRELOAD=<before> again

So the program, and what it starts, has the environment that it was given.
"""

from __future__ import annotations

import ctypes
import os
import sys

from ..errors import PoolError

_BEFORE = "STOWPLAN_LD_PRELOAD"
"""What LD_PRELOAD was, from one beginning of the process to the other."""


def restart() -> None:
    """Return if this process has the library; otherwise begin it anew with the same command line, and do not return.

    Raises
    ------
    PoolError
        It cannot have it: not Linux with glibc, an allocator in malloc's place already, or a loader that ignores it.
    """
    from ..allocator.backends.malloc_pool import is_preloaded, library_path

    before = os.environ.pop(_BEFORE, None)
    if is_preloaded():
        if before:
            os.environ["LD_PRELOAD"] = before
        elif before is not None:
            os.environ.pop("LD_PRELOAD", None)
        return
    _check_libc()
    path = library_path()
    if before is not None:
        raise PoolError(f"LD_PRELOAD={path} was ignored: see what the dynamic loader says above")
    if any(separator in path for separator in ": "):
        raise PoolError(
            f"LD_PRELOAD takes no path with a space or colon; expected stowplan elsewhere than {path}"
        )
    present = os.environ.get("LD_PRELOAD", "")
    os.environ[_BEFORE] = present
    os.environ["LD_PRELOAD"] = f"{present}:{path}" if present else path
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _check_libc() -> None:
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError, AttributeError):
        libc = None
    if not (sys.platform == "linux" and libc):
        raise PoolError("--preload goes below glibc's malloc; expected Linux with glibc")
    owner = _owner_of_malloc()
    if not os.path.basename(owner).startswith("libc.so"):
        raise PoolError(
            f"malloc is {owner}'s, not glibc's: another allocator is preloaded or linked; expected --preload alone"
        )


class _Symbol(ctypes.Structure):
    """What `dladdr` finds."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _owner_of_malloc() -> str:
    """Return the path of the library, or program, whose malloc this process calls."""
    process = ctypes.CDLL(None)
    found = _Symbol()
    process.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Symbol)]
    process.dladdr(ctypes.cast(process.malloc, ctypes.c_void_p), ctypes.byref(found))
    return os.fsdecode(found.file or b"")
