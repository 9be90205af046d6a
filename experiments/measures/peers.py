"""The allocators that stowplan is compared with on the host, as environments that a program is started in.

==========  ============================================================================================================
jemalloc    LD_PRELOAD of the library
mimalloc    LD_PRELOAD of the library
tcmalloc    LD_PRELOAD of the library (gperftools' minimal one, which has no profiler)
glibc       three variables of the C library: large blocks stay on the heap, and the heap keeps what is freed
==========  ============================================================================================================

A library may be a Debian package, or lie where LD_LIBRARY_PATH says. What is missing is said by `missing`, and left
out.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

LIBRARIES = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "mimalloc": ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so.4", "libtcmalloc.so"),
}
"""File names of each library, in order of preference."""
PACKAGES = {"jemalloc": "libjemalloc2", "mimalloc": "libmimalloc2.0", "tcmalloc": "libtcmalloc-minimal4"}
"""Debian's name of each."""
TUNED_GLIBC = "tuned glibc"
VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}
"""Settings of the GNU C library, in bytes. Versions before 2.35 take no larger threshold for mmap than 32 MiB."""
CHOOSING = frozenset({"LD_PRELOAD", *VARIABLES})
"""Variables that choose an allocator."""
PLAIN = "NumPy"
"""The C library's malloc as it is."""


def find_library(files: Iterable[str]) -> Path | None:
    """Look for a shared library where the system keeps them and where LD_LIBRARY_PATH says."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
    for folder in folders:
        for file in files:
            path = Path(folder) / file
            if path.exists():
                return path
    return None


def available() -> dict[str, dict[str, str]]:
    """Return what each allocator of this machine adds to the environment of a program, by name."""
    found = {name: find_library(files) for name, files in LIBRARIES.items()}
    peers = {name: {"LD_PRELOAD": str(path)} for name, path in found.items() if path is not None}
    if platform.libc_ver()[0] == "glibc":
        peers[TUNED_GLIBC] = dict(VARIABLES)
    return peers


def missing() -> list[str]:
    """Return a line for each library that was looked for and is not there."""
    return [
        f"{name} is left out: expected {files[0]} (Debian: apt-get install {PACKAGES[name]})"
        for name, files in LIBRARIES.items()
        if find_library(files) is None
    ]


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without any allocator that was chosen for it, and with `added`."""
    return {key: value for key, value in os.environ.items() if key not in CHOOSING} | dict(added)


def is_chosen() -> bool:
    """Whether this process was started with an allocator that was chosen for it."""
    return not CHOOSING.isdisjoint(os.environ)
