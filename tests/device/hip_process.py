"""Programs that use the simulated HIP runtime by itself, without CuPy, each in a process of its own.

The runtime reads its settings once, and a fault ends its process. So a test is a function that `on_device` runs in
another process, with the settings that it names:

    @on_device(SIMHIP_MEMORY="1MiB")
    def test_memory_ends_at_the_limit(hip: Hip) -> None: ...

A process takes some 50 ms. Bytes are counted as the runtime counts them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = 600
"""More than any of these programs takes: one that waits for ever fails."""

SMALL = {"SIMHIP_PAGE": "4096", "SIMHIP_GRANULARITY": "512", "SIMHIP_CONTEXT": "0"}
"""What a program has where it does not choose: it counts by small numbers."""

KEPT = ("SIMHIP_HOME", "SIMHIP_ADDRESS_SPACE")
"""What a program takes over of its tests' settings: sanitizers leave it few addresses."""

Program = Callable[["Hip"], None]


class HipError(Exception):
    """A call returned an error; the text is its name."""


class Hip:
    """The runtime's functions by their names, and shorter ones for what most programs do."""

    legacy = 0
    per_thread = 2

    def __init__(self, library: str, kernels: str) -> None:
        self.library = ctypes.CDLL(library)
        self.library.hipGetErrorName.restype = ctypes.c_char_p
        for name in ("used", "peak_used", "managed_used", "pinned_used", "pending", "faults", "contexts"):
            getattr(self.library, f"simhip_{name}").restype = ctypes.c_size_t
        self._kernels = kernels
        self._module = 0

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function of HIP's. Numbers go as 64 bits, which x86-64 passes like any shorter ones."""
        passed = [ctypes.c_ulonglong(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]
        error = getattr(self.library, f"hip{name}")(*passed)
        if error != 0:
            raise HipError(self.library.hipGetErrorName(error).decode())

    def error(self, name: str, *arguments: Any) -> str:
        """Return the name of the error that a call returns; it must return one."""
        try:
            self(name, *arguments)
        except HipError as found:
            self.library.hipGetLastError()
            return str(found)
        raise AssertionError(f"hip{name} succeeded")

    def new(self, name: str, *arguments: Any) -> int:
        """Call a function that gives out a pointer or a handle by its first argument."""
        out = ctypes.c_void_p()
        self(name, ctypes.byref(out), *arguments)
        return out.value or 0

    def number(self, name: str, *arguments: Any, of: Any = ctypes.c_int) -> int:
        """Call a function that gives out a number by its first argument."""
        out = of()
        self(name, ctypes.byref(out), *arguments)
        return int(out.value)

    def malloc(self, size: int) -> int:
        return self.new("Malloc", size)

    def stream(self, *, non_blocking: bool = True) -> int:
        return self.new("StreamCreateWithFlags", int(non_blocking))

    def event(self, stream: int) -> int:
        """Record a new event."""
        event = self.new("EventCreateWithFlags", 0)
        self("EventRecord", event, stream)
        return event

    def order(self, before: int, after: int) -> None:
        """Have one stream wait for all that another has been given."""
        self("StreamWaitEvent", after, self.event(before), 0)

    def launch(self, name: str, stream: int, *arguments: Any, threads: int = 1, shared: int = 0) -> None:
        """Launch one block of a kernel of `runtime_kernels.cpp`."""
        if not self._module:
            self._module = self.new("ModuleLoad", self._kernels.encode())
        function = self.new("ModuleGetFunction", self._module, name.encode())
        values = [ctypes.c_longlong(a) if isinstance(a, int) else a for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self("ModuleLaunchKernel", function, 1, 1, 1, threads, 1, 1, shared, stream, pointers, 0)

    def fill(self, stream: int, to: int, value: float, n: int = 16) -> None:
        self.launch("fill", stream, to, n, ctypes.c_float(value))

    def copy(self, stream: int, source: int, to: int, n: int = 16, ticks: int = 0) -> None:
        self.launch("copy", stream, source, to, n, ticks)

    def read(self, source: int, n: int = 16) -> list[float]:
        """Return floats of a device, by a copy that waits for the legacy stream alone."""
        data = ctypes.create_string_buffer(4 * n)
        self("Memcpy", data, source, 4 * n, 2)
        return list(struct.unpack(f"{n}f", data.raw))

    def free_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self("MemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def last_fault(self) -> str:
        text = ctypes.create_string_buffer(1000)
        self.library.simhip_last_fault(text, len(text))
        return text.value.decode()


@functools.cache
def compiled_kernels(home: str) -> str:
    """Compile the kernels; they stay until the tests' process is gone."""
    folder = tempfile.TemporaryDirectory(prefix="simhip-kernels-")
    compiled_kernels.folder = folder  # type: ignore[attr-defined]
    path = str(Path(folder.name) / "kernels.so")
    options = [
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        f"-I{home}/include",
        f"-L{home}/lib",
        "-l:libamdhip64.so.7",
    ]
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, str(HERE / "runtime_kernels.cpp"), *options, "-o", path], check=True)
    return path


def run(program: Program, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program, given as a function of a test's file, in a process of its own."""
    home = os.environ["SIMHIP_HOME"]
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("SIMHIP_")
    }
    file = sys.modules[program.__module__].__file__
    assert file is not None
    command = [sys.executable, str(HERE / "hip_process.py"), file, program.__name__, compiled_kernels(home)]
    environment = {**kept, **SMALL, "PYTHONPATH": str(HERE.parents[1]), **settings}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def on_device(
    *, says: str = "", ends: bool = False, **settings: str
) -> Callable[[Program], Callable[[], None]]:
    """Run a test in a process of its own.

    Parameters
    ----------
    says
        What the process must write to standard error.
    ends
        The process must not come to its end: a fault stops it.
    settings
        The variables that the process has, beside those that have nothing to do with the simulated device.
    """

    def decorate(program: Program) -> Callable[[], None]:
        def test() -> None:
            done = run(program, settings)
            assert (done.returncode != 0) == ends, f"returned {done.returncode}\n{done.stdout}{done.stderr}"
            assert says in done.stderr, done.stderr

        test.program = program  # type: ignore[attr-defined]
        test.__name__, test.__doc__, test.__module__ = program.__name__, program.__doc__, program.__module__
        return test

    return decorate


def main(file: str, name: str, kernels: str) -> None:
    """In the program's own process: run it."""
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["program"] = module
    spec.loader.exec_module(module)
    program = getattr(module, name)
    hip = Hip(os.environ["SIMHIP_HOME"] + "/lib/libamdhip64.so.7", kernels)
    getattr(program, "program", program)(hip)


if __name__ == "__main__":
    main(*sys.argv[1:])
