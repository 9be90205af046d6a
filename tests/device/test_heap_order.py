"""What a device's heap hands on comes after all that used it: to another stream, to an arena, to a graph.

Each program had other bits, or ended, or was refused, before. Work waits until the program does (``SIMHIP_SCHEDULE``).
"""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from stowplan import CupyPool

MIB = 1 << 20


class Program:
    """Blocks with patterns, of a pool; the counter of wrong words is none of the pool's."""

    def __init__(self, cupy: Any, **options: Any) -> None:
        self.cupy, self.device = cupy, cupy.cuda.Device()
        memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(512), 0)
        memory.memset(0, 512)
        self.device.synchronize()
        self._wrong = cupy.ndarray((1,), cupy.uint32, memory)
        pattern = "seed + (unsigned)i * 2654435761u"
        self._fill = cupy.ElementwiseKernel("uint32 seed", "uint32 x", f"x = {pattern}", "fill_words")
        check = f"if (x != {pattern}) atomicAdd(&bad[0], 1u)"
        self._check = cupy.ElementwiseKernel("uint32 x, uint32 seed", "raw uint32 bad", check, "check_words")
        self.pool = CupyPool(**options)
        cupy.cuda.set_allocator(self.pool.malloc)

    def stream(self) -> Any:
        return self.cupy.cuda.Stream(non_blocking=True)

    def filled(self, mib: float, seed: int) -> Any:
        x = self.cupy.empty(int(mib * MIB) // 4, self.cupy.uint32)
        self._fill(seed, x)
        return x

    def check(self, *blocks: Any, first: int = 0) -> None:
        for seed, x in enumerate(blocks, first):
            self._check(x, seed, self._wrong)

    def step(self, stream: Any) -> None:
        """Make eight blocks of 4 MiB, three alive at a time."""
        with stream, self.pool.step():
            xs: list[Any] = []
            for k in range(8):
                xs.append(self.filled(4, k))
                if k >= 2:
                    self.check(xs[k - 2], first=k - 2)
                    xs[k - 2] = None
            self.check(*xs[6:], first=6)
        self.pool.wait()

    def wrong(self) -> int:
        self.device.synchronize()
        return int(self._wrong[0])


@pytest.fixture(autouse=True)
def put_back(cupy: Any) -> Any:
    before = cupy.cuda.get_allocator()
    yield
    cupy.cuda.set_allocator(before)
    cupy.cuda.Device().synchronize()


def test_an_arena_whose_lane_has_passed_on_waits_for_the_former_stream(cupy: Any) -> None:
    program = Program(cupy)
    first, other, _, apart = (program.stream() for _ in range(4))
    for _ in range(8):
        program.step(first)
        first.synchronize()
    for _ in range(12):
        with apart, program.pool.step("apart"):
            program.check(program.filled(4, 0))
        program.pool.wait()
    program.device.synchronize()
    with first:
        ballast = [program.filled(4, 50 + k) for k in range(3)]
    for _ in range(3):
        program.step(other)
        other.synchronize()
    with first:
        for _ in range(3):
            program.check(*ballast, first=50)
        del ballast
    program.step(other)
    assert program.wrong() == 0


@pytest.mark.parametrize(("limit", "drops"), [(26, True), (27, False)])
def test_an_arena_grows_within_a_limit_and_after_its_stream_has_gone(
    cupy: Any, limit: int, drops: bool
) -> None:
    program = Program(cupy, limit=limit * MIB)
    first, other, third = (program.stream() for _ in range(3))
    for _ in range(8):
        program.step(first)
    program.device.synchronize()
    with third:
        ballast = [program.filled(4, 50 + k) for k in range(3 if limit == 27 else 2)]
    if drops:
        del first
        gc.collect()
        for one in [program.stream() for _ in range(9)]:
            with one:
                program.filled(0.001, 0)
        del one
    for _ in range(4):
        program.step(other)
    with third:
        program.check(*ballast, first=50)
    assert program.wrong() == 0


def test_an_arena_of_a_thread_s_own_stream_is_ordered_in_that_thread_alone(cupy: Any) -> None:
    program = Program(cupy, limit=20 * MIB)
    stream, ask, answer = program.stream(), threading.Semaphore(0), threading.Semaphore(0)
    rounds = 18

    def work() -> None:
        for _ in range(rounds):
            ask.acquire()
            program.step(cupy.cuda.Stream.ptds)
            answer.release()

    thread = threading.Thread(target=work)
    thread.start()
    for number in range(rounds):
        if number >= 8:
            program.device.synchronize()
            with stream:
                blocks = [program.filled(4, 50 + k) for k in range(3)]
                for _ in range(3):
                    program.check(*blocks, first=50)
                del blocks
                program.filled(0.001, 0)
        ask.release()
        answer.acquire()
    thread.join()
    assert program.wrong() == 0


@pytest.mark.parametrize("grows", [True, False])
def test_what_another_stream_still_reads_is_nobody_s(cupy: Any, grows: bool) -> None:
    program = Program(cupy)
    loading, computing, third = (program.stream() for _ in range(3))
    with computing:
        program.filled(0.001, 0)
    with loading:
        blocks = [program.filled(8, k) for k in range(4)]
    loading.synchronize()
    with computing:
        for _ in range(3):
            program.check(*blocks)
    del blocks  # no stream is told, nor was one waited for: right with CuPy's own pool
    with computing if grows else third:
        made = [program.filled(size, 90) for size in ((30, 40, 50, 64) if grows else (6, 7, 8, 9))]
    assert program.wrong() == 0
    del made


def test_graphs_that_come_and_go_take_bounded_memory(cupy: Any) -> None:
    program = Program(cupy)
    stream = program.stream()
    held = []
    for number in range(120):
        with stream:
            stream.begin_capture()
            x, y = program.filled(3, 0), program.filled(2, 1)
            program.check(x, y)
            graph = stream.end_capture()
            graph.launch(stream)
            del graph, x, y
            program.check(*(program.filled(size, k) for k, size in enumerate((2, 0.7, 3, 2))))
        if number % 5 == 4:
            program.device.synchronize()
        held.append(program.pool.total_bytes())
    assert max(held) <= max(held[:30]) + 4 * MIB  # two pages, by when a graph's end is seen
    assert program.wrong() == 0


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("marked", [True, False])
def test_a_stream_for_each_batch_takes_one_batch_s_memory(cupy: Any, marked: bool, waits: bool) -> None:
    program = Program(cupy)
    for number in range(30):
        stream = program.stream()
        with stream, program.pool.step() if marked else nullcontext():
            blocks = [program.filled(16 + number % 2, k) for k in range(2)]
            program.check(*blocks)
            del blocks
        program.pool.wait()
        if waits or number % 4 == 3:
            stream.synchronize()
        del stream
    assert program.wrong() == 0
    assert not waits or program.pool.stats.peak_reserved_bytes <= 38 * MIB


def test_marked_blocks_take_little_more_than_they_have(cupy: Any) -> None:
    program = Program(cupy)
    for _ in range(6):
        with program.pool.step():
            program.filled(64, 0)
            blocks = [program.filled(1.1, k) for k in range(50)]
            del blocks
        program.pool.wait()
    assert program.pool.stats.peak_reserved_bytes <= 68 * MIB
