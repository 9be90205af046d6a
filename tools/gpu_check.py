"""The first hour on a GPU: ``make gpu-check``, or ``python -m tools.gpu_check``.

It says what machine this is, runs the suites in order, the most telling ones first, and stops where one fails.
What it prints also goes into one file, which tells all that somebody without this machine needs to know.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "build" / "gpu-check.txt"
SECONDS = 1800
"""What takes longer hangs, and is ended."""

SHOWN = (
    *(("nvidia-smi", *words) for words in ((), ("-q", "-d", "COMPUTE,MEMORY"), ("topo", "-m"))),
    (sys.executable, "-c", "import cupy; cupy.show_config()"),
    (sys.executable, "-m", "pip", "list"),
)
SIZES = """
import cupy
from stowplan import CupyPool
for kib in (64, 1 << 10, 16 << 10, 256 << 10, 1 << 20):
    pool = CupyPool()
    cupy.cuda.set_allocator(pool.malloc)
    free = cupy.cuda.runtime.memGetInfo()[0]
    for _ in range(8):
        with pool.step():
            cupy.ones(kib << 7, "f") + 1
        pool.wait()
    stats, used = pool.stats, free - cupy.cuda.runtime.memGetInfo()[0]
    print(f"{kib:>9,} KiB a step: {stats.replayed} of {stats.requests} requests replayed, {stats.arena_bytes:,} bytes"
          f" of arena, {stats.reserved_bytes:,} reserved, {used:,} by the driver's count", flush=True)
    assert stats.replayed > 0, stats.reasons
    cupy.cuda.set_allocator(None)
    del pool
"""

Step = tuple[str, Sequence[str], dict[str, str]]
"""A title, a command, and the variables that it gets besides those of this process."""


OWNERS = {"cupy": "CupyPool", "c": "the compiled pool"}


def suite(title: str, *words: str, **variables: str) -> Step:
    """Return a step that runs tests, up to the first one that fails."""
    pytest = (sys.executable, "-m", "pytest", "-q", "-x", "-rs", "-p", "no:cacheprovider")
    return title, [*pytest, *words], variables


def steps() -> list[Step]:
    """Return what runs, in order."""
    pool, streams = "tests/gpu/test_cupy_pool_gpu.py", "tests/gpu/test_streams_gpu.py"
    memcheck = ("compute-sanitizer", "--error-exitcode", "1")
    races = (sys.executable, "-m", "tests.device.race_program", "--operations")
    found = [
        ("steps of five sizes are replayed", [sys.executable, "-c", SIZES], {}),
        suite("the pool", pool),
        suite("streams", streams),
        suite("both, and the program waits for each kernel", pool, streams, CUDA_LAUNCH_BLOCKING="1"),
        *(suite(f"both again, for races: {time} of 10", pool, streams) for time in range(1, 11)),
        suite("what every pool has to keep to", "tests/contracts/test_cupy_backend.py"),
        suite("networks, schedules, PyTorch", "tests/gpu"),
        *(
            (f"random programs of races, {owner}", [*races, "100000", "--pool", name], {})
            for name, owner in OWNERS.items()
        ),
        ("one of them under compute-sanitizer", [*memcheck, *races, "1500"], {}),
    ]
    return [step for step in found if shutil.which(step[1][0])]


def facts(runtime: Any) -> Iterator[str]:
    """Yield what is to be known of the machine."""
    yield f"Python {platform.python_version()}, {platform.platform()}"
    variables = sorted(name for name in os.environ if name.startswith(("CUDA", "CUPY")))
    yield from (f"{name}={os.environ[name]}" for name in variables)
    builds = set(metadata.packages_distributions()["cupy"])
    if len(builds) > 1:
        raise RuntimeError(f"{' and '.join(sorted(builds))} are installed; expected one build of CuPy")
    if not (count := runtime.getDeviceCount()):
        raise RuntimeError("the driver knows no device")
    for device in range(count):
        properties = runtime.getDeviceProperties(device)
        capability = f"{properties['major']}.{properties['minor']}"
        yield f"device {device}: {properties['name'].decode()}, {capability}, {properties['totalGlobalMem']:,} bytes"
        yield f"  peers: {[n for n in range(count) if n != device and runtime.deviceCanAccessPeer(device, n)]}"
        if not runtime.is_hip:
            for what, number in {"virtual memory": 102, "memory pools": 115, "managed on demand": 89}.items():
                yield f"  {what}: {runtime.deviceGetAttribute(number, device)}"
            page, location = ctypes.c_size_t(), (ctypes.c_int * 8)(1, 0, 1, device)  # a CUmemAllocationProp
            error = ctypes.CDLL("libcuda.so.1").cuMemGetAllocationGranularity(ctypes.byref(page), location, 0)
            yield f"  pages: {page.value:,} bytes" if error == 0 else f"  pages: error {error}"


def run(command: Sequence[str], out: TextIO, **variables: str) -> int:
    """Run a command, show what it prints, and return its exit status."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env={**os.environ, **variables}, cwd=ROOT, **pipes) as process:
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        for line in process.stdout or ():
            say(line.rstrip(), out)
        timer.cancel()
    return process.returncode


def say(line: str, out: TextIO) -> None:
    """Print a line, and write it into the file."""
    for file in (sys.stdout, out):
        print(line, file=file, flush=True)


def check(found: Sequence[Step], out: TextIO) -> int:
    """Run steps until one fails; return 0 where there is none."""
    for number, (title, command, variables) in enumerate(found, 1):
        say(f"\n== {number} of {len(found)}: {title}", out)
        if status := run(command, out, **variables):
            say(f"== stopped: {title}: exit status {status}, expected 0", out)
            return 1
    say("== no surprise", out)
    return 0


def main() -> int:
    """Check the machine."""
    try:
        import cupy

        found = list(facts(cupy.cuda.runtime))
    except Exception as error:  # of CuPy, its libraries or the driver
        sys.exit(f"stowplan: gpu-check: nothing was run: {error}; expected a device and one CuPy")
    FILE.parent.mkdir(exist_ok=True)
    with open(FILE, "w", encoding="utf-8") as out:
        for fact in found:
            say(fact, out)
        for command in SHOWN:
            if shutil.which(command[0]):
                run(command, out)
        status = check(steps(), out)
    print(f"stowplan: gpu-check: {FILE} has all of this: please read it, and send it")
    return status


if __name__ == "__main__":
    sys.exit(main())
