"""Problems for the packing tests, small enough that ties, touching edges and full gaps are frequent."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice, product
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from experiments.papers.mobile_networks import NETWORKS
from stowplan.packing import Problem
from stowplan.packing.placement import peak_of

# The solvers that need no time limit.
HEURISTICS = ("best_fit", "best_fit_orders", "peak_outward", "window_repair")

DATA = Path(__file__).resolve().parents[1] / "data"


@cache
def data(name: str) -> Problem:
    """A published problem: a file below tests/data (see SOURCES.md there), or one of the mobile networks."""
    if name in NETWORKS:
        return NETWORKS[name]()
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
        file.flush()
        return Problem.from_csv(file.name)


def digest(placements: Iterable[object]) -> int:
    """One number for some placements; it is another one where a single offset differs."""
    return zlib.crc32(repr(list(placements)).encode())


def inclusive(*rows: tuple[int, int, int]) -> Problem:
    """A problem as the papers print it: rows of size, first and last operator."""
    size, first, last = np.array(rows).T
    return Problem(size, first, last + 1)


def placements_below(problem: Problem, peak: int, most: int) -> Iterator[np.ndarray]:
    """Those of the first ``most`` rows of offsets that stay below a peak, overlaps not looked at."""
    choices = [
        [f] if f >= 0 else range(0, max(peak - s, 0), a)
        for s, a, f in zip(problem.size, problem.alignment, problem.fixed, strict=True)
    ]
    for offsets in islice(product(*choices), most):
        row = np.array(offsets, dtype=np.int64)
        if peak_of(problem, row) < peak:
            yield row


def draw_gaps(draw: st.DrawFn, size: list[int], start: list[int], end: list[int]) -> list[tuple[int, ...]]:
    """No gaps, or up to two for each block, some of them with a window."""
    gaps: list[tuple[int, ...]] = []
    for i in range(len(size) if draw(st.booleans()) else 0):
        ticks = sorted(draw(st.sets(st.integers(start[i], end[i]), max_size=4)))
        for t0, t1 in zip(ticks[::2], ticks[1::2], strict=False):
            window = sorted((draw(st.integers(0, size[i])), draw(st.integers(0, size[i]))))
            gaps.append((i, t0, t1, *(window if draw(st.booleans()) else (0, 0))))
    return gaps


@st.composite
def problems(draw: st.DrawFn, most: int = 12, plain: bool = False) -> Problem:
    """Up to ``most`` blocks; unless ``plain`` also gaps, windows, alignments and fixed offsets that agree."""
    n = draw(st.integers(0, most))
    size = draw(st.lists(st.integers(0, 12), min_size=n, max_size=n))
    start = draw(st.lists(st.integers(-2, 12), min_size=n, max_size=n))
    life = draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    end = [s + d for s, d in zip(start, life, strict=True)]
    if plain:
        return Problem(size, start, end)
    alignment = draw(
        st.one_of(st.just([1] * n), st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=n, max_size=n))
    )
    gaps = draw_gaps(draw, size, start, end)
    # Fixed blocks are stacked in row order, so they cannot contradict each other.
    fixed = [-1] * n
    top = 0
    for i in range(n if draw(st.booleans()) else 0):
        if draw(st.integers(0, 3)) == 0:
            top += draw(st.integers(0, 6))
            fixed[i] = -(-top // alignment[i]) * alignment[i]
            top = fixed[i] + size[i]
    return Problem(size, start, end, gaps=gaps, alignment=alignment, fixed=fixed)


def random_problem(seed: int, n: int = 200) -> Problem:
    """``n`` blocks, more than hypothesis likes to draw: a third with gaps, some aligned, a few fixed."""
    rng = np.random.default_rng(seed)
    size = rng.integers(0, 1000, n) if seed % 2 else 16 * rng.integers(1, 20, n)
    start = rng.integers(0, 2 * n, n)
    end = start + 1 + rng.exponential(30, n).astype(np.int64)
    gaps = []
    for i in rng.choice(n, n // 3, replace=False):
        ticks = np.unique(rng.integers(start[i], end[i] + 1, 4))
        for t0, t1 in zip(ticks[::2], ticks[1::2], strict=False):
            gaps.append(
                (i, t0, t1, *(np.sort(rng.integers(0, size[i] + 1, 2)) if rng.random() < 0.3 else (0, 0)))
            )
    alignment = rng.choice([1, 16, 64], n)
    fixed = np.full(n, -1)
    top = 0
    for i in rng.choice(n, n // 20, replace=False):
        fixed[i] = -(-(top + rng.integers(0, 500)) // alignment[i]) * alignment[i]
        top = fixed[i] + size[i]
    return Problem(size, start, end, gaps=gaps, alignment=alignment, fixed=fixed)


def training_step(seed: int, layers: int = 60) -> Problem:
    """One step of training as Chainer orders it, with its wrapped blocks.

    Forward makes activations, which backward frees in reverse. The gradients of the step before live until
    ``cleargrads`` runs between the two, in parameter order; backward makes them anew: one gap each.
    """
    rng = np.random.default_rng(seed)
    clock = 0
    rows: list[list[int]] = []  # size, start, end

    def allocate(size: int) -> int:
        nonlocal clock
        rows.append([size, clock, -1])
        clock += 1
        return len(rows) - 1

    def free(row: int) -> None:
        nonlocal clock
        rows[row][2] = clock
        clock += 1

    def size(low: float, high: float) -> int:
        return int(64 * np.round(2 ** rng.uniform(low, high)))

    activations, cleared = [], {}
    for _ in range(layers):
        scratch = allocate(size(4, 14)) if rng.random() < 0.5 else None
        activations.append(allocate(size(6, 14)))
        if scratch is not None:
            free(scratch)
    parameters = [size(0, 14) for _ in range(2 * layers)]
    for p in range(len(parameters)):
        cleared[p] = clock
        clock += 1
    upward = allocate(size(2, 4))
    made = {}
    for layer in reversed(range(layers)):
        for p in (2 * layer, 2 * layer + 1):
            scratch = allocate(size(4, 14))
            made[p] = clock
            clock += 1
            free(scratch)
        downward = allocate(rows[activations[layer]][0])
        free(upward)
        free(activations[layer])
        upward = downward
    free(upward)
    gaps = [(len(rows) + p, cleared[p], made[p]) for p in range(len(parameters))]
    rows += [[s, 0, clock] for s in parameters]
    columns = np.array(rows).T
    return Problem(*columns, gaps=gaps)
