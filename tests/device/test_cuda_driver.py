"""The compiled pool by the names of CUDA's driver, over the simulated device: contexts, captures, and the GIL."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ..gpu import test_pool_captures_gpu as captures
from .programs import run

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the beginning of a program, whose pool finds the driver that is loaded."""
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
    hip = [f"-L{os.environ['SIMHIP_HOME']}/lib", "-l:libamdhip64.so.7"]
    compiler = os.environ.get("CXX", "g++")
    subprocess.run(
        [compiler, *options, str(HERE / "cuda_driver.cpp"), "-o", str(library), *hip, "-ldl"], check=True
    )
    return f"""
import ctypes

driver = ctypes.CDLL("{library}")
from tests.device.c_pool import CPool as Pool
"""


def test_contexts_are_of_the_devices_used_and_leave_no_thread_changed(pool: str) -> None:
    program = """
import threading
import cupy

pool = Pool(limit="90%")
cupy.cuda.set_allocator(pool.malloc)
assert driver.simcuda_retained() == 0
cupy.cuda.Device(1).use()
stream = cupy.cuda.Stream(non_blocking=True)
for _ in range(6):
    with pool.step():
        x = cupy.ones(1000)
        with stream:
            y = cupy.ones(1000)
        pool.record_stream(x, stream)
        del x, y
    pool.wait()
assert pool.stats.replayed > 0
kept = [cupy.ones(1000)]
pool.record_stream(kept[0], stream)
found = []


def drop():
    before = cupy.cuda.runtime.getDevice()
    kept.clear()
    found.extend((before, cupy.cuda.runtime.getDevice(), driver.simcuda_contexts()))


thread = threading.Thread(target=drop)
thread.start()
thread.join()
pool.free_all_blocks()
assert found == [0, 0, 0], found
made = driver.simcuda_retained(), driver.simcuda_contexts()
assert made == (0b10, 0), made
"""
    run(pool + program, SIMHIP_DEVICES="3")


@pytest.mark.parametrize(
    "name",
    [
        "planned_steps_of_another_thread_end_no_capture",
        "a_graph_keeps_what_its_capture_asked_for",
        "a_pool_that_is_dropped_ends_no_capture_and_goes_after_it",
    ],
)
def test_captures_stay_whole(pool: str, name: str) -> None:
    captures.test_captures(pool, captures.PROGRAMS[name])


def test_the_gil_is_free_wherever_the_driver_may_wait(pool: str) -> None:
    """CuPy calls a C allocator with the GIL held, and a stream may wait for a host function that needs it."""
    program = """
import cupy

pool = Pool(limit="64MiB")
cupy.cuda.set_allocator(pool.malloc)
stream = cupy.cuda.Stream(non_blocking=True)
for n in (1000, 5000):
    for _ in range(6):
        with pool.step(), stream:
            x = cupy.ones(n)
            pool.record_stream(x, cupy.cuda.Stream.null)
            del x
            y = cupy.ones(n)
            del y
        pool.wait()
try:
    cupy.empty(1 << 30, cupy.int8)
except cupy.cuda.memory.OutOfMemoryError as error:
    assert "1,073,741,824" in str(error)
pool.free_all_blocks()
assert pool.stats.replayed > 0
driver.simcuda_under_gil.restype = ctypes.c_char_p
assert driver.simcuda_under_gil() == b"", driver.simcuda_under_gil()
"""
    run(pool + program)
