"""Four processes that write and read one store, killed at random, again and again; ``store_kills.py DIR KILLS SEED``.

Run in a process of its own, which has imported everything, has one thread, and forks. A process that finds a plan it
has to refuse ends by itself, with an error: only kills may end one. Prints how many were killed in the middle of
writing, at least.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback
import warnings

import numpy as np

from stowplan.packing import Problem, pack
from stowplan.planning.store_directory import DirectoryStore
from stowplan.planning.store_packing import Packer, decode, key_of

PROCESSES = 4
PROBLEMS = 12
BLOCKS = 300
LIMIT = 8 * BLOCKS * PROBLEMS // 3  # not all of them have room: there is always something to write
STUCK = 30.0  # seconds in which a process that is not stuck does something


def problems() -> list[Problem]:
    """Return problems that are quick to pack."""
    rng = np.random.default_rng(0)
    start = np.arange(BLOCKS)
    return [Problem(64 * rng.integers(1, 100, BLOCKS), start, start + 3) for _ in range(PROBLEMS)]


def work(known: list[Problem], store: DirectoryStore, count: mmap.mmap, place: int, seed: int) -> None:
    """Ask for one problem after the other, for ever."""
    warnings.simplefilter("error")
    rng, asked = random.Random(seed), Packer(store)
    for n in range(1 << 60):
        asked(rng.choice(known), "best_fit")
        time.sleep(rng.random() * 1e-3)  # the machine has fewer cores than there are processes
        struct.pack_into("<q", count, 8 * place, n)


def begin(known: list[Problem], store: DirectoryStore, count: mmap.mmap, place: int, seed: int) -> int:
    """Fork a process that works; return its id."""
    child = os.fork()
    if child == 0:
        try:
            work(known, store, count, place, seed)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return child


def counts(count: mmap.mmap) -> tuple[int, ...]:
    """Return how far each process is."""
    return struct.unpack(f"<{PROCESSES}q", count[: 8 * PROCESSES])


def main(path: str, kills: int, seed: int) -> None:
    """Kill, begin anew, and look at what is left."""
    rng, store, count = random.Random(seed), DirectoryStore(path, LIMIT), mmap.mmap(-1, 8 * PROCESSES)
    known = problems()
    for problem in known:  # compiled parts are loaded before the first fork
        pack(problem, "best_fit")
    children = [begin(known, store, count, place, seed + place) for place in range(PROCESSES)]
    try:
        for kill in range(kills):
            time.sleep(rng.random() * 0.002)
            place = rng.randrange(PROCESSES)
            os.kill(children[place], signal.SIGKILL)
            _, status = os.waitpid(children[place], 0)
            children[place] = 0
            if not os.WIFSIGNALED(status):
                sys.exit(f"kill {kill}: process {place} had ended by itself")
            children[place] = begin(known, store, count, place, seed + PROCESSES + kill)
        unfinished = sum(name.startswith(".") for name in os.listdir(path))
        before, until = counts(count), time.monotonic() + STUCK
        while any(one == other for one, other in zip(before, counts(count), strict=True)):
            if time.monotonic() > until:
                sys.exit(f"a process is stuck: {before}, and {counts(count)} {STUCK} s later")
            time.sleep(0.01)
    finally:
        for child in filter(None, children):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    whole = 0
    for problem in known:
        key = key_of(problem, "best_fit")
        data = store.find(key)
        if data is not None:
            decode(data, key, problem)
            whole += 1
    print(f"{kills} kills, {unfinished} of them while writing, {whole} plans whole")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
