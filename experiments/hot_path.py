"""What one request costs, and a step: ``python -m experiments.hot_path``.

(a) ``cupy.cuda.alloc(n)`` and the drop of what it returns, through a CupyPool that replays, over the cheapest allocator
that Python can be: one that returns ``MemoryPointer(UnownedMemory(address, n, owner, 0), 0)`` and nothing else. Without
a GPU over host memory; with one, CuPy's own pool stands beside.

(b) ``numpy.empty(n)``, one byte written to each page, and the drop, through a NumpyPool that replays, over NumPy's
default handler. One block at a time, which every allocator recycles while it is warm; then with 256 MiB alive at once
before the first of them is dropped, as a step holds them. Beside them NumPy's default handler over other allocators
(`measures.peers`).

(c) ``with pool.step(): pass`` once the pool has a plan for it, over ``with nullcontext(): pass``: what a step costs
beside its requests.

Contestants of one process take turns, and the best of all turns counts: other programs on the machine can only make a
turn slower.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from stowplan import CupyPool, NumpyPool

from .measures import peers
from .measures.runner import NO_TIMES, SIMULATED, is_simulated

PAGE = 4096
ONE = np.ones((), np.uint8)
CUPY_SIZES = (512, 2**16, 2**20, 2**26)
NUMPY_SIZES = (64, 256, 512, 2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26, 2**28)
HELD = 2**28
HELD_SIZES = (2**14, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26)
ROUNDS, QUICK_ROUNDS = 40, 6


@dataclass(frozen=True)
class Row:
    """A size, the contestant, nanoseconds, and these over the first contestant's."""

    part: str
    size: int
    contestant: str
    ns: float
    ratio: float


Turn = Callable[[], float]
"""Measure once; return nanoseconds per request."""


def best_of(rounds: int, turns: dict[str, Turn]) -> dict[str, float]:
    """Let the contestants take turns; return each one's best."""
    best = dict.fromkeys(turns, float("inf"))
    for _ in range(rounds):
        for name, turn in turns.items():
            best[name] = min(best[name], turn())
    return best


def rows(part: str, size: int, best: dict[str, float]) -> list[Row]:
    """Set each contestant against the first."""
    reference = next(iter(best.values()))
    return [Row(part, size, name, ns, ns / reference) for name, ns in best.items()]


def warm_up(pool: Any, turn: Turn) -> None:
    """Run a step until it is replayed."""
    for _ in range(4):
        turn()
        pool.wait()
    before = pool.stats
    turn()
    if pool.stats.reasons != before.reasons:
        raise SystemExit(f"the step is not replayed: {pool.stats}")


# ---------------------------------------------------------------------------------------------------------- (a) CuPy


def cupy_rows(rounds: int) -> list[Row]:
    """Measure (a); nothing where CuPy is not installed, or has a simulated device."""
    try:
        import cupy
    except ImportError:
        return []
    try:
        on_gpu = cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        on_gpu = False
    if on_gpu and is_simulated():
        click.echo(f"cupy.cuda.alloc on the {SIMULATED}: {NO_TIMES}", err=True)
        return []
    found: list[Row] = []
    for size in CUPY_SIZES:
        pool = CupyPool(None if on_gpu else host_allocator, device=0)
        memory = pool.malloc(size)
        turns = {
            "cheapest": cupy_turn(cheapest_allocator(memory), size, nullcontext),
            "CupyPool": cupy_turn(pool.malloc, size, pool.step),
        }
        if on_gpu:
            current = CupyPool()
            turns["CupyPool, any device"] = cupy_turn(current.malloc, size, current.step)
            turns["cupy.cuda.MemoryPool"] = cupy_turn(cupy.cuda.MemoryPool().malloc, size, nullcontext)
            warm_up(current, turns["CupyPool, any device"])
        warm_up(pool, turns["CupyPool"])
        found += rows("cupy.cuda.alloc", size, best_of(rounds, turns))
    return found


def cupy_turn(
    allocator: Callable[[int], Any], size: int, step: Callable[[], AbstractContextManager[Any]]
) -> Turn:
    """Measure ``cupy.cuda.alloc`` with an allocator."""
    from cupy.cuda import alloc, using_allocator

    count = 2000

    def turn() -> float:
        with using_allocator(allocator), step():
            began = time.process_time_ns()
            for _ in range(count):
                alloc(size)
            return (time.process_time_ns() - began) / count

    return turn


def cheapest_allocator(memory: Any) -> Callable[[int], Any]:
    """Return the allocator that gives out the same address again and again."""
    from cupy.cuda import MemoryPointer, UnownedMemory

    address, owner = memory.ptr, memory

    def allocate(size: int) -> Any:
        return MemoryPointer(UnownedMemory(address, size, owner, 0), 0)

    return allocate


def host_allocator(size: int) -> Any:
    """Serve CuPy from host memory, untouched, so that its size costs nothing."""
    from cupy.cuda import MemoryPointer, UnownedMemory

    buffer = np.empty(size + 512, np.uint8)
    address = -(-buffer.ctypes.data // 512) * 512
    return MemoryPointer(UnownedMemory(address, size, buffer, 0), 0)


# --------------------------------------------------------------------------------------------------------- (b) NumPy


def numpy_turn(
    size: int, held: int = 1, step: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Turn:
    """Measure ``numpy.empty`` with the handler of the context, a byte written to each page.

    Blocks are dropped when `held` of them are alive.
    """
    count = max(1, min(2000, 2**27 // size) // held)

    def turn() -> float:
        with step():
            began = time.process_time_ns()
            for _ in range(count):
                arrays = []
                for _ in range(held):
                    array = np.empty(size, np.uint8)
                    array[::PAGE] = ONE
                    arrays.append(array)
                del array, arrays
            return (time.process_time_ns() - began) / (count * held)

    return turn


def through(pool: NumpyPool, turn: Turn) -> Turn:
    """Take a turn within a pool."""

    def turn_in_pool() -> float:
        with pool:
            return turn()

    return turn_in_pool


def numpy_rows(rounds: int, sizes: Iterable[int], held: bool) -> list[Row]:
    """Measure (b), each size in processes of its own: what a malloc does depends on what it did before."""
    part = "numpy.empty, 256 MiB alive at once" if held else "numpy.empty"
    found = []
    for size in sizes:
        n = HELD // size if held else 1
        best = in_process({}, rounds, size, n)
        for name, added in peers.available().items():
            best[f"NumPy over {name}"] = in_process(added, rounds, size, n)["NumPy"]
        found += rows(part, size, best)
    return found


def in_process(added: Mapping[str, str], rounds: int, size: int, held: int) -> dict[str, float]:
    """Measure in a process of its own that has `added` in its environment; return nanoseconds by contestant."""
    command = [sys.executable, "-m", "experiments.hot_path", "--child", *map(str, (rounds, size, held))]
    done = subprocess.run(command, env=peers.environment(added), capture_output=True, text=True, check=True)
    best: dict[str, float] = json.loads(done.stdout)
    return best


def answer(rounds: int, size: int, held: int) -> None:
    """Answer `in_process`: NumPy's default handler and, in turns with it, the pool."""
    turns = {"NumPy": numpy_turn(size, held)}
    if not peers.is_chosen():
        pool = NumpyPool()
        turns["NumpyPool"] = through(pool, numpy_turn(size, held, pool.step))
        warm_up(pool, turns["NumpyPool"])
    print(json.dumps(best_of(rounds, turns)))


# ---------------------------------------------------------------------------------------------------------- (c) a step


def step_turn(step: Callable[[], AbstractContextManager[Any]]) -> Turn:
    """Measure a step around nothing."""
    count = 200

    def turn() -> float:
        began = time.process_time_ns()
        for _ in range(count):
            with step():
                pass
        return (time.process_time_ns() - began) / count

    return turn


def step_rows(rounds: int) -> list[Row]:
    """Measure (c); without CupyPool where CuPy is not installed."""
    pools: dict[str, Any] = {"NumpyPool": NumpyPool()}
    if importlib.util.find_spec("cupy") is not None:
        pools["CupyPool"] = CupyPool(host_allocator, device=0)
    turns = {"nothing": step_turn(nullcontext)}
    for name, pool in pools.items():
        turns[name] = step_turn(pool.step)
        warm_up(pool, turns[name])
    return rows("with pool.step(): pass", 0, best_of(rounds, turns))


# ------------------------------------------------------------------------------------------------------------- output


def show(found: list[Row]) -> None:
    """Print one table for each part."""
    for part in dict.fromkeys(row.part for row in found):
        here = [row for row in found if row.part == part]
        contestants = list(dict.fromkeys(row.contestant for row in here))
        what = "a block of n bytes" if any(row.size for row in here) else "each"
        table = Table(title=f"{part}: nanoseconds for {what}, and times the first contestant")
        table.add_column("n", justify="right")
        for contestant in contestants:
            table.add_column(contestant, justify="right")
        for size in dict.fromkeys(row.size for row in here):
            cells = {row.contestant: f"{row.ns:,.0f} ({row.ratio:.2f})" for row in here if row.size == size}
            table.add_row(human(size), *(cells.get(contestant, "") for contestant in contestants))
        Console().print(table)


def human(size: int) -> str:
    """Write a size in the largest unit that divides it."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


@click.command()
@click.option("--quick", is_flag=True, help="Fewer turns and sizes: seconds instead of minutes.")
@click.option("--csv", "csv_path", type=click.Path(dir_okay=False), help="Write all rows to this file, too.")
@click.option("--child", is_flag=True, hidden=True)
@click.argument("numbers", nargs=-1, type=int)
def main(quick: bool, csv_path: str | None, child: bool, numbers: tuple[int, ...]) -> None:
    """Measure what one request costs, and a step, in ratios."""
    if child:
        answer(*numbers)
        return
    rounds = QUICK_ROUNDS if quick else ROUNDS
    found = [*step_rows(10 * rounds), *cupy_rows(10 * rounds)]
    for held, sizes in ((False, NUMPY_SIZES), (True, HELD_SIZES)):
        chosen = sizes[::3] if quick else sizes
        turns = max(2, rounds // 8) if held else rounds
        found += numpy_rows(turns, chosen, held)
    show(found)
    if csv_path is not None:
        with open(csv_path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["part", "bytes", "contestant", "ns", "ratio"])
            writer.writerows([row.part, row.size, row.contestant, row.ns, row.ratio] for row in found)


if __name__ == "__main__":
    main()
