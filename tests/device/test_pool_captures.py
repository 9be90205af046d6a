"""The compiled pool's steps within captures, on the simulated device."""

from __future__ import annotations

from .programs import run


def test_an_outgrown_arena_that_a_captured_step_gives_back_does_not_end_the_capture() -> None:
    """Nothing announces CuPy's captures, and the legacy stream knows of blocking streams alone."""
    program = """
import cupy
from tests.device.c_pool import CPool

pool = CPool()
cupy.cuda.set_allocator(pool.malloc)
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
"""
    run(program)
