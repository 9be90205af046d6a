"""No pool destroys a capture of the program's, nor gives to others what a graph uses."""

from __future__ import annotations

import pytest

from ..device.programs import run

pytestmark = pytest.mark.gpu

POOLS = {
    "CupyPool": "from stowplan import CupyPool as Pool",
    "compiled": "from tests.device.c_pool import CPool as Pool",
}

SETUP = """
import cupy

pool = Pool()
cupy.cuda.set_allocator(pool.malloc)
"""

PROGRAMS = {
    # Nothing announces CuPy's captures, and the legacy stream knows of blocking streams alone.
    "an_outgrown_arena_that_a_captured_step_gives_back_does_not_end_the_capture": """
with cupy.cuda.Stream(non_blocking=True) as stream:
    x = cupy.arange(4096, dtype=cupy.float32)
    out = cupy.zeros_like(x)

    def step(n, within=lambda: None):
        with pool.step():
            within()
            cupy.multiply(x[:n] + 1, 2, out=out[:n])

    for _ in range(4):
        step(1024)
        pool.wait()
    assert pool.stats.replayed > 0
    for _ in range(3):
        step(4096)
    stream.begin_capture()
    step(4096, within=pool.wait)  # the plan is ready before this step ends
    graph = stream.end_capture()
    out.fill(0)
    graph.launch(stream)
    assert (out.get(stream=stream) == (x.get(stream=stream) + 1) * 2).all()
""",
    # A block outlives its pool, which is destroyed with the block, and the program has dropped the stream.
    "a_dead_pool_waits_for_streams_that_are_there": """
import gc
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    x = cupy.ones(1000) * 2
stream.synchronize()
cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
del pool, stream
gc.collect()
assert float(x[0]) == 2
del x
with Pool().step():  # looks for dead pools
    pass
""",
    # Arenas come and go meanwhile.
    "planned_steps_of_another_thread_end_no_capture": """
import threading


def steps():
    with cupy.cuda.Stream(non_blocking=True):
        for i in range(12):
            with pool.step("other"):
                y = cupy.ones(1000 if i < 6 else 5000) * 2
                del y
            pool.wait()
        pool.free_all_blocks()


with cupy.cuda.Stream(non_blocking=True) as stream:
    x = cupy.ones(1000)
    out = cupy.multiply(x, 2)
    stream.synchronize()
    stream.begin_capture()
    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    cupy.multiply(x, 3, out=out)
    stream.end_capture().launch(stream)
    assert float(out[0]) == 3
    steps()
""",
    # Garbage collection may drop it at any moment; another pool's stream may be the one that is captured.
    "a_pool_that_is_dropped_ends_no_capture_and_goes_after_it": """
import gc

cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
first, second = Pool(), Pool()
with cupy.cuda.Stream(non_blocking=True) as stream:
    with cupy.cuda.using_allocator(first.malloc):
        for _ in range(6):
            with first.step():
                y = cupy.ones(1 << 20) * 2
                del y
            first.wait()
    x = cupy.ones(1000)
    out = cupy.multiply(x, 2)
    stream.synchronize()
    free = cupy.cuda.runtime.memGetInfo()[0]
    stream.begin_capture()
    del first
    gc.collect()
    cupy.multiply(x, 3, out=out)
    stream.end_capture().launch(stream)
    assert float(out[0]) == 3
    with cupy.cuda.using_allocator(second.malloc), second.step():
        y = cupy.ones(1000)
    assert cupy.cuda.runtime.memGetInfo()[0] >= free + (8 << 20)
""",
    # The other stream still uses a block where the plan places the capture's, which may not wait for it.
    "a_capture_that_begins_within_a_step_does_not_wait_for_other_streams": """
other = cupy.cuda.Stream(non_blocking=True)
with cupy.cuda.Stream(non_blocking=True) as stream:
    x = cupy.ones(1 << 18, dtype=cupy.float32)
    large = cupy.ones(1 << 22, dtype=cupy.float32)
    out = cupy.zeros_like(x)

    def step(captures):
        with pool.step():
            a = x * 2
            ready = stream.record()
            with other:
                other.wait_event(ready)
                for _ in range(20):
                    cupy.multiply(large, 1, out=large)
            pool.record_stream(a, other)
            del a
            if captures:
                stream.begin_capture()
            b = x * 3
            cupy.add(b, 1, out=out)
            del b
            return stream.end_capture() if captures else None

    def waits_of(steps):
        before = pool.stats.replayed
        for _ in range(steps):
            step(captures=False)
        return pool.stats.replayed - before

    for _ in range(4):
        step(captures=False)
        pool.wait()
    assert waits_of(4) > 4  # without a capture, the stream is told to wait
    for _ in range(6):
        out.fill(0)
        graph = step(captures=True)
        graph.launch(stream)
        assert (out.get(stream=stream) == 4).all()
""",
    # The pool has not served the stream that is captured, and asks after its events meanwhile.
    "a_capture_in_any_mode_lives_through_steps_on_other_streams": """
main, side, captured = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
with main:
    x = cupy.ones(1 << 16, dtype=cupy.float32)
    out, read = cupy.zeros_like(x), cupy.zeros_like(x)
    cupy.multiply(x, 3, out=out)


def step():
    with main, pool.step():
        a = x * 2
        side.wait_event(main.record())
        with side:
            cupy.multiply(a, 1, out=read)
        pool.record_stream(a, side)
        del a
        b = x * 3
        del b


for _ in range(6):
    step()
    pool.wait()
main.synchronize()
modes = cupy.cuda.runtime
for mode in (modes.streamCaptureModeGlobal, modes.streamCaptureModeThreadLocal, modes.streamCaptureModeRelaxed):
    captured.begin_capture(mode=mode)
    with captured:
        cupy.multiply(x, 5, out=out)
    step()
    graph = captured.end_capture()
    graph.launch(captured)
    assert (out.get(stream=captured) == 5).all()
""",
    # The block in the place of the step's first request is held when the step before it ends.
    "a_step_waits_for_other_streams_of_the_one_before": """
pool = Pool()
cupy.cuda.set_allocator(pool.malloc)
main, side = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
with main:
    x = cupy.arange(1 << 16, dtype=cupy.float32)
with side:
    total = cupy.zeros_like(x)


def step(i):
    with main:
        a = x * 2 + i
        b = a * 3
        c = b + 1
        del a, b
        side.wait_event(main.record())
        with side:
            cupy.add(total, c, out=total)
        pool.record_stream(c, side)
        del c


for i in range(40):
    with pool.step():
        step(i)
    if i % 10 == 9:
        pool.wait()
before = pool.stats
for i in range(10):
    with pool.step():
        step(i)
after = pool.stats
assert after.replayed - before.replayed >= 35, (before, after)
assert after.reasons.get("late", 0) == before.reasons.get("late", 0), after.reasons
expected = sum((x.get(stream=main) * 2 + i) * 3 + 1 for i in (*range(40), *range(10)))
assert abs(total.get(stream=side) - expected).max() <= 1e-5 * expected.max()
""",
    # The program may launch the graph at any time: neither another request nor the device gets its memory.
    "a_graph_keeps_what_its_capture_asked_for": """
with cupy.cuda.Stream(non_blocking=True) as stream:
    x = cupy.arange(1 << 16, dtype=cupy.float32)
    out = cupy.empty_like(x)

    def work():
        y = x * 2 + 1
        cupy.multiply(y, y, out=out)

    work()
    stream.begin_capture()
    work()
    graph = stream.end_capture()
    pool.free_all_blocks()
    others = [cupy.zeros(1 << 16, dtype=cupy.float32) for _ in range(8)]
    graph.launch(stream)
    assert (out.get(stream=stream) == (2 * x.get(stream=stream) + 1) ** 2).all()
    assert not any(other.any() for other in others)
""",
    "memory_goes_with_the_last_that_can_launch_it": """
MIB = 1 << 20
before, stream = pool.stats.reserved_bytes, cupy.cuda.Stream(non_blocking=True)
with stream:
    for failing in range(4):
        stream.begin_capture()
        cupy.empty(20 * MIB, "b")
        stream.end_capture()
    pool.free_all_blocks()
    assert pool.stats.reserved_bytes <= before + 2 * MIB
    x = cupy.ones(4 * MIB, "b")
    y = x + x
    stream.begin_capture()
    y = x + x  # the graph's
    z = y + x
    graph = stream.end_capture()
    del y
    pool.free_all_blocks()
    others = [cupy.zeros(4 * MIB, "b") for _ in range(8)]
    graph.launch(stream)
    del graph
    assert (z == 3).all()  # whose memory is its own still
    assert not any(other.any() for other in others)
    del z, others, x
    stream.synchronize()
    pool.free_all_blocks()
    assert pool.stats.reserved_bytes <= before + 2 * MIB
""",
    "steps_go_on_in_a_capture_that_is_broken_and_after_it": """
with cupy.cuda.Stream(non_blocking=True) as stream:
    x = cupy.ones(1 << 16)

    def step():
        with pool.step():
            y = x * 2
            z = y + 1
            del y
            return z

    def refused(call):
        try:
            call()
        except Exception as error:
            return error

    for _ in range(6):
        step()
        pool.wait()
    stream.synchronize()
    stream.begin_capture()
    assert refused(stream.synchronize)  # which breaks the capture
    with pool.step():  # nothing runs in it: kernels are refused
        cupy.cuda.alloc(1 << 19)
    pool.wait()
    assert refused(stream.end_capture)
    before = pool.stats.replayed
    for _ in range(4):
        assert float(step()[0]) == 3
        pool.wait()
    assert pool.stats.replayed > before
""",
}
"""What each claims of either pool, by its name."""


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_captures(pool: str, program: str) -> None:
    run(pool + SETUP + program)


def test_an_upstream_that_gives_back_at_once_keeps_what_a_graph_uses() -> None:
    program = """
import cupy
from stowplan import CupyPool

pool = CupyPool(upstream=cupy.cuda.malloc_managed)
cupy.cuda.set_allocator(pool.malloc)
with cupy.cuda.Stream(non_blocking=True) as stream:
    x = cupy.ones(1000)
    out = cupy.empty_like(x)
    cupy.multiply(x + 1, 2, out=out)
    stream.begin_capture()
    cupy.multiply(x + 1, 2, out=out)
    stream.end_capture().launch(stream)
    assert float(out[0]) == 4
"""
    run(program)


def test_an_abandoned_capture_goes_with_its_stream() -> None:
    program = """
import gc
import cupy
from stowplan import CupyPool

pool = CupyPool()
cupy.cuda.set_allocator(pool.malloc)
x = cupy.ones(1 << 18, dtype=cupy.float32)


def capture():
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        y = x * 2
        raise ValueError


try:
    capture()
except ValueError:
    pass
gc.collect()
other = cupy.cuda.Stream(non_blocking=True)
with other:
    for i in range(4):
        with pool.step():
            a = cupy.full((16 + i) << 20, i, dtype=cupy.uint8)
            other.synchronize()
            del a
assert pool.stats.reserved_bytes < 40 << 20, pool.stats.reserved_bytes
cupy.cuda.Device().synchronize()
assert (x.get() == 1).all()
"""
    run(program)
