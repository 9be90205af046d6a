"""Several devices, peer copies, and the end of a device's memory, as CuPy shows them."""

from __future__ import annotations

import pytest

from ..gpu.test_pool_captures_gpu import POOLS
from .programs import run

TWO = """
import cupy
assert cupy.cuda.runtime.getDeviceCount() == 2
with cupy.cuda.Device(0):
    a = cupy.arange(100_000, dtype="f")
    b = a * 2
with cupy.cuda.Device(1):
    copy = cupy.asarray(b)  # from the other device
    assert copy.device.id == 1
    c = copy + 1
    assert float(c[-1]) == 199_999
    before = cupy.cuda.runtime.memGetInfo()[0]
    kept = cupy.cuda.alloc(1 << 22)
    assert before - cupy.cuda.runtime.memGetInfo()[0] >= 1 << 22
with cupy.cuda.Device(0):
    back = cupy.empty_like(b)
    back.data.copy_from_device_async(c.data, c.nbytes, cupy.cuda.Stream.null)
    assert (back.get() == c.get()).all()
    b += cupy.asarray(c)
    assert float(b[-1]) == 2 * 199_998 + 1
print(cupy.cuda.runtime.deviceCanAccessPeer(0, 1))
"""


def test_arrays_go_from_one_device_to_another() -> None:
    for schedule in ("lazy", "adversarial", "eager"):
        done = run(TWO, SIMHIP_DEVICES="2", SIMHIP_SCHEDULE=schedule, SIMHIP_DELAY="100")
        assert done.stdout == "1\n"


def test_a_pool_makes_contexts_where_the_program_works_alone() -> None:
    program = """
import ctypes
import cupy
from stowplan import CupyPool

contexts = getattr(ctypes.CDLL("libamdhip64.so.7"), "simhip_contexts", lambda: 0b10)  # a bit for each device
pool = CupyPool(limit="50%")
cupy.cuda.set_allocator(pool.malloc)
cupy.cuda.Device(1).use()
for _ in range(6):
    with pool.step():
        x = cupy.ones(1000)
        y = x * 2
        del x, y
    pool.wait()
pool.free_all_blocks()
assert pool.stats.replayed > 0
assert contexts() == 0b10, bin(contexts())
"""
    run(program, SIMHIP_DEVICES="3")


def test_a_peer_may_use_what_the_compiled_pool_serves() -> None:
    program = """
import cupy
from tests.device.c_pool import CPool

pool = CPool()
cupy.cuda.set_allocator(pool.malloc)
with cupy.cuda.Device(0):
    x = cupy.ones(1000)
    cupy.cuda.Device(0).synchronize()
with cupy.cuda.Device(1):
    y = x + 1  # CuPy enables access to the peer
    assert float(y[-1]) == 2
"""
    run(program, SIMHIP_DEVICES="2")


def test_steps_are_told_on_every_device() -> None:
    for pool in ("from stowplan import CupyPool as Pool", "from tests.device.c_pool import CPool as Pool"):
        program = """
import cupy
from tests.updates import update

pool = Pool(auto_step=True)
cupy.cuda.set_allocator(pool.malloc)
for device in (1, 0):
    with cupy.cuda.Device(device):
        for _ in range(8):
            x = cupy.ones(1 << 16)
            y = x * 2
            z = y + 1
            del x, y, z
            update()
            pool.wait()
        assert (pool.stats.steps, pool.stats.replayed) == (7, 3 * 3), pool.stats
"""
        run(pool + program, SIMHIP_DEVICES="2")


FULL = """
import cupy
free, total = cupy.cuda.runtime.memGetInfo()
assert total == 64 * 2**20, total
pool = cupy.get_default_memory_pool()
kept = [cupy.empty(2**23, "B") for _ in range(6)]
try:
    cupy.empty(2**25, "B")
except cupy.cuda.memory.OutOfMemoryError as error:
    print(error)
used = pool.total_bytes()
assert used == free - cupy.cuda.runtime.memGetInfo()[0] == 6 * 2**23
del kept
pool.free_all_blocks()
assert cupy.cuda.runtime.memGetInfo()[0] == free
cupy.empty(2**25, "B")
"""


def test_memory_ends_where_the_variable_says() -> None:
    assert "Out of memory allocating 33,554,432 bytes" in run(FULL, SIMHIP_MEMORY="64MiB").stdout


def test_each_device_has_its_own_memory() -> None:
    program = """
import cupy
for device in range(3):
    with cupy.cuda.Device(device):
        kept = cupy.cuda.runtime.malloc(48 * 2**20)
        try:
            cupy.cuda.runtime.malloc(48 * 2**20)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            print(error.status)
"""
    done = run(program, SIMHIP_MEMORY="64MiB", SIMHIP_DEVICES="3")
    assert done.stdout == "2\n" * 3  # hipErrorOutOfMemory, cudaErrorMemoryAllocation


def test_managed_memory_goes_beyond_the_device() -> None:
    program = """
import cupy
cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
a = cupy.ones(2**25, "f")
assert float(a.sum()) == 2**25
"""
    run(program, SIMHIP_MEMORY="64MiB")


def test_a_free_on_another_device_ends_no_global_capture() -> None:
    program = """
import threading
import cupy
from tests.device.c_pool import CPool

pool = CPool()
cupy.cuda.set_allocator(pool.malloc)
with cupy.cuda.Device(1):
    dropped = [cupy.ones(1000)]
    cupy.cuda.Device(1).synchronize()
with cupy.cuda.Stream(non_blocking=True) as stream:
    x = cupy.ones(10)
    out = cupy.multiply(x, x)
    stream.synchronize()
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)

    def drop():
        cupy.cuda.Device(1).use()
        dropped.clear()

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join()
    cupy.multiply(x, x, out=out)
    stream.end_capture()
"""
    run(program, SIMHIP_DEVICES="2")


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_a_thread_on_another_device_ends_no_capture(pool: str) -> None:
    """A finalizer may run anywhere; the legacy streams of two devices have one handle."""
    program = """
import threading
import cupy

pool = Pool()
cupy.cuda.set_allocator(pool.malloc)
cupy.cuda.Device(1).use()
stream = cupy.cuda.Stream()  # the legacy stream would wait for it
x = cupy.ones(1000)
out = cupy.multiply(x, 2)
with stream:
    dropped = [cupy.ones(1000)]
    pool.record_stream(dropped[0], cupy.cuda.Stream.null)
    cupy.cuda.Device(1).synchronize()
    stream.begin_capture()
    thread = threading.Thread(target=dropped.clear)
    thread.start()
    thread.join()
    cupy.multiply(x, 3, out=out)
    stream.end_capture().launch(stream)
    assert float(out[0]) == 3
"""
    run(pool + program, SIMHIP_DEVICES="2")
