"""What one request costs, and a step: ``python -m experiments.hot_path``.

(a) ``cupy.cuda.alloc(n)`` and the drop of what it returns, through a CupyPool that replays, over the cheapest allocator
that Python can be: one that returns ``MemoryPointer(UnownedMemory(address, n, owner, 0), 0)`` and nothing else.
It hears of no free, and does not ask for the current stream; CuPy's own pool does both, and stands beside. All over
host memory, but on a GPU; CuPy's pool, once warm, asks the device for nothing.

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

import importlib.util
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from stowplan import CupyPool, NumpyPool

from .measures import output, peers
from .measures.apart import ask
from .measures.kept import Row
from .measures.runner import has_gpu, is_simulated

PAGE = 4096
ONE = np.ones((), np.uint8)
CUPY_SIZES = (512, 2**16, 2**20, 2**26)
NUMPY_SIZES = (64, 256, 512, 2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26, 2**28)
HELD = 2**28
HELD_SIZES = (2**14, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26)
ROUNDS, QUICK_ROUNDS = 40, 6
COLUMNS = [
    output.Column("part", "part"),
    output.Column("bytes", "bytes", lambda size: f"{size:,}"),
    output.Column("contestant", "contestant"),
    output.Column("ns", "ns", lambda ns: f"{ns:,.0f}"),
    output.Column("over the first", "ratio", lambda ratio: f"{ratio:.2f}"),
]
NOTE = (
    "`python -m tests.device.simulated -m experiments.hot_path --csv FILE`: CuPy's objects are real, its device is "
    "not, and is asked for nothing. The cheapest hears of no free, and does not ask for the current stream."
)


Turn = Callable[[], float]
"""Measure once; return nanoseconds per request."""
Context = Callable[[], AbstractContextManager[Any]]
"""Makes the context of a turn."""


def best_of(rounds: int, turns: dict[str, Turn]) -> dict[str, float]:
    """Let the contestants take turns; return each one's best."""
    best = dict.fromkeys(turns, float("inf"))
    for _ in range(rounds):
        for name, turn in turns.items():
            best[name] = min(best[name], turn())
    return best


def rows(part: str, size: int, best: dict[str, float]) -> list[Row]:
    """Set each contestant against the first: nanoseconds, and these over the first one's."""
    reference = next(iter(best.values()))
    about = {"device": "cpu", "part": part, "bytes": size}
    return [about | {"contestant": name, "ns": ns, "ratio": ns / reference} for name, ns in best.items()]


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
    if importlib.util.find_spec("cupy") is None:
        return []
    from cupy.cuda import MemoryPool

    on_gpu, found = has_gpu() and not is_simulated(), []
    for size in CUPY_SIZES:
        pool = CupyPool(None if on_gpu else host_allocator, device=0)
        memory = pool.malloc(size)
        turns = {
            "cheapest": cupy_turn(cheapest_allocator(memory), size, nullcontext),
            "CupyPool": cupy_turn(pool.malloc, size, pool.step),
        }
        if has_gpu():
            turns["cupy.cuda.MemoryPool"] = cupy_turn(MemoryPool().malloc, size, nullcontext)
        if on_gpu:
            current = CupyPool()
            turns["CupyPool, any device"] = cupy_turn(current.malloc, size, current.step)
            warm_up(current, turns["CupyPool, any device"])
        warm_up(pool, turns["CupyPool"])
        found += rows("cupy.cuda.alloc", size, best_of(rounds, turns))
    return found


def cupy_turn(allocator: Callable[[int], Any], size: int, step: Context) -> Turn:
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


def numpy_turn(size: int, held: int = 1, step: Context = nullcontext) -> Turn:
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
        asked = {"rounds": rounds, "size": size, "held": n}
        best = ask("experiments.hot_path:best_of_numpy", asked)
        for name, added in peers.available().items():
            over = ask("experiments.hot_path:best_of_numpy", asked, added)
            best[f"NumPy over {name}"] = over["NumPy"]
        found += rows(part, size, best)
    return found


def best_of_numpy(rounds: int, size: int, held: int) -> dict[str, float]:
    """Measure NumPy's default handler and, in turns with it, the pool: in a process of its own, see `numpy_rows`."""
    turns = {"NumPy": numpy_turn(size, held)}
    if not peers.is_chosen():
        pool = NumpyPool()
        turns["NumpyPool"] = through(pool, numpy_turn(size, held, pool.step))
        warm_up(pool, turns["NumpyPool"])
    return best_of(rounds, turns)


# ---------------------------------------------------------------------------------------------------------- (c) a step


def step_turn(step: Context) -> Turn:
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


@click.command()
@click.option("--quick", is_flag=True, help="Fewer turns and sizes: seconds instead of minutes.")
@click.option("--csv", "path", type=click.Path(dir_okay=False, path_type=Path), help="For the table.")
def main(quick: bool, path: Path | None) -> None:
    """Measure what one request costs, and a step, in ratios."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    found = [*step_rows(10 * rounds), *cupy_rows(10 * rounds)]
    for held, sizes in ((False, NUMPY_SIZES), (True, HELD_SIZES)):
        chosen = sizes[::3] if quick else sizes
        turns = max(2, rounds // 8) if held else rounds
        found += numpy_rows(turns, chosen, held)
    Console().print(Markdown("\n".join(output.markdown(found, COLUMNS))))
    if path is not None:
        output.write_table(found, COLUMNS, path.with_suffix(""), "What a request costs, and a step", NOTE, ())


if __name__ == "__main__":
    main()
