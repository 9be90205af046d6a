"""How many requests threads make that run steps at once: ``python -m experiments.threads``.

Each thread repeats a step of its own: blocks of 4 KiB to 256 KiB, four alive at a time, a byte written to each page.

(a) ``numpy.empty``, through one NumpyPool that all threads have entered, beside NumPy's default handler.

(b) ``cupy.cuda.alloc``, through one CupyPool, beside the cheapest allocator that can be written in Python (see
`hot_path`), over host memory that is never touched.

The tables show the requests per second of all threads together, and the processor time of a request, which other
programs on the machine disturb less. NumPy and CuPy call their allocators with the GIL held, so more threads do not
make more requests; what counts is that they do not make fewer. The contestants take turns, and the best turn counts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from stowplan import CupyPool, NumpyPool

from .hot_path import ONE, PAGE, cheapest_allocator, host_allocator
from .measures import output
from .measures.kept import Row

THREADS = (1, 2, 4, 8)
SIZES = tuple(2 ** (12 + i % 7) for i in range(100))
ALIVE = 4
STEPS, QUICK_STEPS = 100, 5
ROUNDS, QUICK_ROUNDS = 9, 2

Context = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Contestant:
    """An allocator: the context that each thread enters, that of a step, and the function that asks for a block."""

    entered: Context
    step: Context
    allocate: Callable[[int], Any]
    wait: Callable[[], object] = lambda: None


def one_step(contestant: Contestant) -> None:
    """Ask for the blocks of one step."""
    with contestant.step():
        alive: deque[Any] = deque(maxlen=ALIVE)
        for size in SIZES:
            alive.append(contestant.allocate(size))


class Team:
    """Threads that exist between their turns, so that no turn includes the start of a thread.

    Parameters
    ----------
    contestant
        Serves all of them.
    count
        Number of threads.
    """

    def __init__(self, contestant: Contestant, count: int) -> None:
        self._contestant = contestant
        self._barrier = threading.Barrier(count + 1)
        self._steps = 0
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()
        for _ in range(4):  # until the plans are there
            self.turn(1)
            contestant.wait()

    def _work(self) -> None:
        with self._contestant.entered():
            while True:
                self._barrier.wait()
                if self._steps == 0:
                    return
                for _ in range(self._steps):
                    one_step(self._contestant)
                self._barrier.wait()

    def turn(self, steps: int) -> tuple[float, float]:
        """Run that many steps in each thread; return requests per second, and processor time for each in ns."""
        self._steps = steps
        worked = time.process_time_ns()
        began = time.perf_counter()  # before the barrier: this thread may be the last to run behind it
        self._barrier.wait()
        self._barrier.wait()
        requests = len(self._threads) * steps * len(SIZES)
        return requests / (time.perf_counter() - began), (time.process_time_ns() - worked) / requests

    def dismiss(self) -> None:
        """End the threads."""
        self._steps = 0
        self._barrier.wait()
        for thread in self._threads:
            thread.join()


def touch(size: int) -> Any:
    """Make a NumPy array, and write a byte to each of its pages."""
    array = np.empty(size, np.uint8)
    array[::PAGE] = ONE
    return array


def numpy_contestants() -> dict[str, Contestant]:
    """Return (a)."""
    pool = NumpyPool()
    return {
        "NumPy": Contestant(nullcontext, nullcontext, touch),
        "NumpyPool": Contestant(pool.serving, pool.step, touch, pool.wait),
    }


def cupy_contestants() -> dict[str, Contestant]:
    """Return (b); none if CuPy is not installed."""
    try:
        from cupy.cuda import alloc, using_allocator
    except ImportError:
        return {}
    pool = CupyPool(host_allocator, device=0)
    cheapest = cheapest_allocator(host_allocator(max(SIZES)))
    return {
        "cheapest": Contestant(lambda: using_allocator(cheapest), nullcontext, alloc),
        "CupyPool": Contestant(pool.serving, pool.step, alloc, pool.wait),
    }


def measure(
    part: str, contestants: Callable[[], dict[str, Contestant]], steps: int, rounds: int
) -> list[Row]:
    """Let the contestants take turns, for each number of threads."""
    found: list[Row] = []
    for count in THREADS:
        teams = {name: Team(contestant, count) for name, contestant in contestants().items()}
        best = dict.fromkeys(teams, (0.0, float("inf")))
        for _ in range(rounds):
            for name, team in teams.items():
                rate, cpu_ns = team.turn(steps)
                best[name] = (max(best[name][0], rate), min(best[name][1], cpu_ns))
        for team in teams.values():
            team.dismiss()
        first = next((rate for rate, _ in best.values()), 1.0)
        for name, (rate, cpu) in best.items():
            about = {"part": part, "threads": count, "contestant": name}
            found.append(about | {"requests_per_s": rate, "ratio": rate / first, "cpu_ns": cpu})
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Fewer steps and turns: seconds instead of a minute.")
@output.csv_path
def main(quick: bool, path: Path | None) -> None:
    """Measure how many requests threads make that run steps at once."""
    steps, rounds = (QUICK_STEPS, QUICK_ROUNDS) if quick else (STEPS, ROUNDS)
    found = measure("numpy.empty", numpy_contestants, steps, rounds)
    found += measure("cupy.cuda.alloc", cupy_contestants, steps, rounds)
    output.print_matrices(
        found,
        "threads",
        "1000 requests per second (times the first's), processor time of one",
        lambda row: f"{row['requests_per_s'] / 1000:,.0f} ({row['ratio']:.2f}) {row['cpu_ns']:,.0f} ns",
    )
    if path is not None:
        output.write_csv(found, path)


if __name__ == "__main__":
    main()
