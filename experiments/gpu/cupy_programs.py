"""Programs of CuPy that know nothing of stowplan: each a function from a scale to a step.

A step gets its number and returns what shows its result, an array. At scale 1 each takes some hundred MiB of a GPU; at
`QUICK` some, so that it runs on the simulated device, too.

==============  ========================================================================
cahn_hilliard   phases that separate, by fast Fourier transforms
decoding        a cache of keys and values that grows by ``concatenate``
sizes           sort, unique and masks over lengths that differ in every step
factors         cuSOLVER's and cuBLAS's workspaces, three sizes in turn
two_in_turn     two streams take turns at blocks of one size; nothing waits
three_in_turn   the same with three
copies          three streams: data in, work, results out
==============  ========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy as cp
import numpy as np

from stowplan import CupyPool

Step = Callable[[int], Any]
WAYS = {
    "pool": "CuPy's pool",
    "async": "CuPy's async pool",
    "unmarked": "stowplan",
    "marked": "stowplan, marked",
}
STEPS = 60
QUICK = 1 / 16
"""Scale of lengths: areas are 1/256."""


def install(way: str, watched: Callable[[Any], Any]) -> Any:
    """Have CuPy's arrays served in a way; return stowplan's pool, None if it is another."""
    pool = CupyPool() if "marked" in way else None
    others = {"pool": cp.cuda.MemoryPool, "async": cp.cuda.MemoryAsyncPool}
    cp.cuda.set_allocator(watched((pool or others[way]()).malloc))
    return pool


def cahn_hilliard(scale: float) -> Step:
    """Take a step of the Cahn-Hilliard equation on 2048 x 2048 points (at scale 1)."""
    side = int(2048 * scale)
    waves = (2 * cp.pi * cp.fft.fftfreq(side)) ** 2
    laplace = -(waves[:, None] + waves[: side // 2 + 1][None])
    state = {"c": cp.cos(cp.arange(side * side, dtype="d")).reshape(side, side) / 10}

    def step(number: int) -> Any:
        c = state["c"]
        force = cp.fft.rfft2(c**3 - c)
        state["c"] = cp.fft.irfft2(
            (cp.fft.rfft2(c) + laplace * force / 100) / (1 + laplace**2 / 100), c.shape
        )
        return state["c"]

    return step


def decoding(scale: float) -> Step:
    """Take a token: keys and values of each layer grow by one row, and are read whole."""
    layers, width = 12, int(4096 * scale)
    cache = [cp.ones((32, width), "f") for _ in range(2 * layers)]

    def step(number: int) -> Any:
        x = cp.full(width, 1 + number % 7, "f")
        for k in range(0, 2 * layers, 2):
            cache[k] = cp.concatenate([cache[k], (x * 0.5)[None]])
            cache[k + 1] = cp.concatenate([cache[k + 1], (x * 0.25)[None]])
            weights = (cache[k] * x).sum(1)
            x = cp.tanh(x + (weights[:, None] / len(weights) * cache[k + 1]).max(0))
        return x

    return step


def sizes(scale: float) -> Step:
    """Sort, find unique values, mask: over some 10^7 numbers (at scale 1), as many as differ from step to step."""
    lengths = np.random.RandomState(0).lognormal(np.log(4e7 * scale**2), 0.5, 10_000).astype(int)

    def step(number: int) -> Any:
        x = cp.sin(cp.arange(lengths[number], dtype="d") * (1 + number))
        kept = x[x > 0.25] * 2
        ordered = cp.sort(kept)
        steps = cp.unique((ordered * 1000).astype("i"))
        return cp.concatenate([ordered[:1000], steps.astype("d"), kept.sum()[None]])

    return step


def factors(scale: float) -> Step:
    """Solve and decompose, three sizes in turn."""
    sides = [int(side * scale) for side in (1024, 1536, 2048)]

    def step(number: int) -> Any:
        side = sides[number % 3]
        a = cp.sin(cp.arange(side * side, dtype="d")).reshape(side, side) + side * cp.eye(side)
        return cp.linalg.solve(a, a.T @ a) + cp.linalg.qr(a)[1]

    return step


def in_turn(count: int) -> Callable[[float], Step]:
    """Return a program of so many streams, which take turns at blocks of one size."""

    def program(scale: float) -> Step:
        streams: Sequence[Any] = [cp.cuda.Stream(non_blocking=True) for _ in range(count)]
        length = int(2**22 * scale)
        ends = [cp.zeros(length, "f") for _ in streams]

        def step(number: int) -> Any:
            for stream, end in zip(streams, ends, strict=True):
                with stream:
                    x = cp.arange(length, dtype="f")
                    for _ in range(4):
                        x = cp.sqrt(x * x + number)
                    end[...] = x
            return ends[0]

        return step

    return program


def copies(scale: float) -> Step:
    """Take data in on one stream, work on a second, give results out on a third, ordered by events."""
    coming, work, going = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    data = np.arange(int(2**24 * scale), dtype="f")
    out = cp.zeros(len(data), "f")

    def step(number: int) -> Any:
        with coming:
            x = cp.array(data)
        work.wait_event(coming.record())
        with work:
            y = cp.tanh(x) + number
        going.wait_event(work.record())
        with going:
            out[...] = y
        going.synchronize()  # x and y are dropped when their last use is over, as CuPy's own pool needs it
        return out

    return step


PROGRAMS: dict[str, Callable[[float], Step]] = {
    **{program.__name__: program for program in (cahn_hilliard, decoding, sizes, factors, copies)},
    "two_in_turn": in_turn(2),
    "three_in_turn": in_turn(3),
}
