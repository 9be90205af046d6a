"""Loops of NumPy whose steps differ, run plain, through a pool, and marked: what each takes of memory, and its results.

``python -m tests.properties.marked_programs FIRST COUNT`` prints for each seed a line of JSON: by way, the process's
largest resident set in KiB beyond what it began with, and a digest of all that it computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.random  # as most programs do, and one of the solvers

from stowplan import NumpyPool
from stowplan.allocator import lane  # with what planning imports

assert lane
assert numpy.random
WAYS = ("plain", "unmarked", "marked")


class EarlyError(Exception):
    """What ends a step before its end."""


def program(
    seed: int, step: Callable[[], AbstractContextManager[Any]], after_step: Callable[[], object]
) -> str:
    """Run a loop whose sizes vary, that keeps results, and whose steps may end early; return a digest of it."""
    chance = random.Random(seed)
    unit, longest = chance.choice([1_000, 20_000, 120_000]), chance.randint(2, 20)
    varies, keeps = chance.choice([0, 0.2, 1]), chance.choice([0, 0.3, 1])
    seen = hashlib.blake2b(digest_size=8)
    kept: list[Any] = []
    named = np.zeros(1)

    def size() -> int:
        return unit if chance.random() >= varies else chance.randint(unit // 4, 2 * unit)

    for _ in range(chance.randint(4, 16)):
        length = longest if chance.random() >= varies else chance.randint(1, longest)
        try:
            with step():
                stack = []
                for k in range(length):
                    one = np.full(size(), k + 1.0)
                    stack.append((one, np.concatenate([one] * chance.randint(1, 3)), np.sqrt(one)))
                    if chance.random() < 0.02:
                        raise EarlyError
                named = named[:1] + np.ones((length, unit)).sum(0)
                while stack:
                    one, several, root = stack.pop()
                    result = several[: len(one)] * root + one
                    seen.update(result[::1009].tobytes())
                    if chance.random() < keeps / length:
                        kept.append(result)
        except EarlyError:
            stack.clear()
        if len(kept) > 3:
            del kept[: chance.randint(0, 3)]
        after_step()
    for result in [*kept, named]:
        seen.update(result.tobytes())
    return seen.hexdigest()


def resident(name: str) -> int:
    """Return a figure of this process's memory, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def run(seed: int, way: str) -> tuple[int, str]:
    before = resident("VmRSS")
    if way == "plain":
        digest = program(seed, nullcontext, lambda: None)
    else:
        pool = NumpyPool(warmup=1, planning_share=float("inf"))
        with pool:
            digest = program(seed, pool.step if way == "marked" else nullcontext, pool.wait)
    return resident("VmHWM") - before, digest


def apart(seed: int, way: str) -> tuple[int, str]:
    """Run in a process of its own, whose high-water mark is its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(run(seed, way)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        most, digest = json.loads(answer.read())
    os.waitpid(child, 0)
    return most, digest


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        print(json.dumps({way: apart(seed, way) for way in WAYS} | {"seed": seed}), flush=True)
