"""A random program on several streams, whose every value is checked: ``python -m tests.device.race_program``.

It is right by itself: what it does with one array on two streams it orders by events, and before it drops an array it
either tells the pool of the streams that still use it, or has the array's own stream wait for them. So a value is wrong
only where the pool gave out a place too early.

    round     a new pool, some workers (one, or some on threads of their own), each with streams of its own
    section   a body, run again and again: as a step, or once; then it may be captured into a graph
    body      operations on numbered slots: make and fill an array, add, check, read back, drop

An array holds the same number everywhere, another one in each run of a body. Kernels check it, and the program waits
for none of them: `Wrong` has what they found at the end of the round. What each run does follows from the seed; the
order of threads, and so which array one is handed by another, does not.

O(1) for an operation, some 20 µs.
"""

from __future__ import annotations

import argparse
import math
import random
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import cupy

from stowplan import CupyPool

from .c_pool import CPool
from .other_driver import driver_without
from .race_worker import WORKERS, Counts, Machine, Value, Worker

KINDS = ("marked", "threads", "marked")
"""Rounds take turns: steps on one thread, or on several."""

ROUND = 1_500
"""Operations of a round, at the least."""


AnyPool: TypeAlias = CupyPool | CPool


def new_c_pool(draw: random.Random) -> AnyPool:
    """Return a pool of C functions, and make it the allocator."""
    pool = CPool(planning_share=math.inf)
    cupy.cuda.set_allocator(pool.malloc)
    return pool


def new_pool(draw: random.Random) -> AnyPool:
    """Return a pool over one of three upstreams, and make it the allocator."""
    of_cupy = cupy.cuda.MemoryPool()
    # Without one; with one that gives back to the device; with one that keeps all.
    upstream = draw.choices((None, of_cupy, lambda size: of_cupy.malloc(size)), (6, 1, 1))[0]
    sample = "managed" if draw.random() < 0.1 else "device"
    pool = CupyPool(upstream, sample=sample, planning_share=math.inf)
    cupy.cuda.set_allocator(pool.malloc)
    return pool


POOLS: dict[str, Callable[..., AnyPool]] = {"cupy": new_pool, "c": new_c_pool}
"""How a round makes its pool."""


def run_round(machine: Machine, seed: int, number: int, counts: Counts, make: Callable[..., AnyPool]) -> None:
    """Run a round: one worker, or three on threads of their own."""
    draw = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    pool = make(draw)
    handed: list[Value] | None = [] if kind == "threads" else None
    until = counts.operations + ROUND
    numbers = range(WORKERS) if kind == "threads" else [draw.randrange(WORKERS)]
    workers = [Worker(machine, pool, counts, one, f"{seed} {number} {one}", handed) for one in numbers]

    def work(worker: Worker) -> None:
        section = 0
        while counts.operations < until:
            worker.section(step=f"body {section}")
            worker.free_form()
            section += 1

    if len(workers) == 1:
        work(workers[0])
    else:
        run_threads([lambda worker=worker: work(worker) for worker in workers])  # type: ignore[misc]
    counts.replayed += pool.stats.replayed
    machine.wrong.raise_for_any()


def run_threads(functions: Sequence[Callable[[], None]]) -> None:
    """Run functions on threads; raise what the first of them raises."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def run_program(operations: int, seed: int, make: Callable[..., AnyPool] = new_pool) -> Counts:
    """Run so many operations, at the least; raise an error at the first round with a wrong value."""
    machine, counts = Machine(), Counts()
    allocator = cupy.cuda.get_allocator()
    number = 0
    try:
        while counts.operations < operations:
            try:
                run_round(machine, seed, number, counts, make)
            except Exception as error:
                error.args = (f"round {number}, after {counts.operations} operations: {error}",)
                raise
            number += 1
    finally:
        cupy.cuda.set_allocator(allocator)
    return counts


# -------------------------------------------------------------------------------------------------------- measures


def do_nothing(*_: Any) -> None:
    """Stand for a measure that is switched off."""


MEASURES = {
    "wait": ("stream_wait_event",),
    "hold": (),
    "capture": ("stream_is_capturing",),
    "idle": ("event_synchronize", "device_synchronize"),
}
"""What keeps places safe: functions of the driver's; `CupyPool.record_stream` for "hold"."""


def main() -> None:
    """Run the program with the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])  # type: ignore[union-attr]
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", choices=MEASURES, help="switch a safety measure of the pool off")
    parser.add_argument("--pool", choices=POOLS, default="cupy")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "upstream .* has no free_all_blocks")  # one of `new_pool`
    if options.without == "hold":
        CupyPool.record_stream = do_nothing  # type: ignore[method-assign]
    elif options.without:
        table = driver_without(*MEASURES[options.without])
        CupyPool._table = lambda self: table  # type: ignore[method-assign]
    print(f"no value is wrong: {run_program(options.operations, options.seed, POOLS[options.pool])}")


if __name__ == "__main__":
    main()
