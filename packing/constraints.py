"""Constraints between blocks, reduced to a problem without any: every solver honours them for free.

`pack` reduces a problem that has some where it enters; a problem without any never comes here. Two constraints tie
blocks to each other, whatever their lifetimes:

``apart``
    Two blocks whose address ranges are disjoint even where their lifetimes are (parallel streams: Lamprou et al.,
    MLSys 2023).
``contiguous``
    A row of blocks, each beginning where the one before it ends (bulk communication).

Contiguous blocks have known distances, so they become one *compound* block. Its pieces are, at each time, the bytes
from the lowest live member to the highest::

    contiguous: a, b       bytes
                             |     bbbb
                             | aaaaaa
    one block, three pieces  +----------> clock

A pair kept apart gets one more tick, after the real clock, at which exactly these two are alive.

Where members leave a hole between them in address (a and c alive, b not, in ``[a, b, c]``), the compound covers the
hole too: what comes out is valid, but a proof of optimality for the compound is none for the blocks
(`Reduction.exact`). The lower bound never counts the hole.

O(n + m t) for m members in groups whose lifetimes have t ends.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..common.errors import ProblemError
from .problem import COLUMNS, IntArray, Pieces, Problem, changed


class Reduction(NamedTuple):
    """A problem without ``apart`` and ``contiguous``, and the way back.

    Attributes
    ----------
    problem
        One block for each group and for each block in none. It may go on for some ticks after the real clock.
    real
        The same blocks without these ticks.
    block, shift
        Row i of the original lies in block ``block[i]``, ``shift[i]`` bytes above its offset; both (n,).
    exact
        Whether the valid placements of both are the same.
    occupied
        What the blocks really occupy over time, as columns start, end and bytes.
    largest_pair
        Bytes of the largest pair kept apart, 0 without any.
    """

    problem: Problem
    real: Problem
    block: IntArray
    shift: IntArray
    exact: bool
    occupied: tuple[IntArray, IntArray, IntArray]
    largest_pair: int

    def expand(self, offsets: IntArray) -> IntArray:
        """Offsets of the original's blocks, (n,), from those of ``problem``."""
        return np.asarray(offsets[self.block] + self.shift, dtype=np.int64)


def reduce(problem: Problem) -> Reduction:
    """Turn the constraints between blocks into blocks and ticks.

    Raises
    ------
    ProblemError
        Constraints contradict each other; the message names the blocks.
    """
    leader = np.arange(len(problem))
    shift = np.zeros(len(problem), dtype=np.int64)
    built: dict[int, _Compound] = {}
    for members in _groups(problem):
        compound = _compound(problem, members)
        rows = np.array(sorted(members))
        leader[rows] = rows[0]
        shift[rows] = [compound.shift[i] for i in rows.tolist()]
        built[int(rows[0])] = compound
    kept, block = np.unique(leader, return_inverse=True)
    block = block.astype(np.int64)
    real = _assembled(problem, kept, built)
    exact = all(step[4] == step[3] - step[2] for compound in built.values() for step in compound.steps)
    extended, largest = _kept_apart(problem, real, block, shift)
    occupied = _occupied(real, {int(np.searchsorted(kept, i)): c.steps for i, c in built.items()})
    return Reduction(extended, real, block, shift, exact, occupied, largest)


class _Compound(NamedTuple):
    """One group as a block; ``steps`` are (start, end, lower, upper, bytes occupied), following each other."""

    shift: dict[int, int]
    size: int
    start: int
    end: int
    alignment: int
    fixed: int
    steps: list[tuple[int, int, int, int, int]]


def _groups(problem: Problem) -> list[dict[int, int]]:
    """Blocks tied to each other, each with its distance in bytes from the lowest member."""
    root: dict[int, int] = {}
    above: dict[int, int] = {}  # distance from the root
    members: dict[int, list[int]] = {}
    for group in problem.contiguous:
        for i in group.tolist():
            if i not in root:
                root[i], above[i], members[i] = i, 0, [i]
        for i, j in pairwise(group.tolist()):
            distance = int(problem.size[i])
            if root[i] == root[j]:
                if above[j] - above[i] != distance:
                    raise ProblemError(
                        f"the contiguous group {group.tolist()} demands that block {j} lie {distance} bytes above "
                        f"block {i}; other groups demand {above[j] - above[i]}"
                    )
                continue
            moved = above[i] + distance - above[j]
            gone = members.pop(root[j])
            for k in gone:
                above[k] += moved
                root[k] = root[i]
            members[root[i]] += gone
    result = []
    for tied in members.values():
        least = min(above[i] for i in tied)
        result.append({i: above[i] - least for i in tied})
    return result


def _compound(problem: Problem, distance: dict[int, int]) -> _Compound:
    rows = sorted(distance)
    residue, modulus = 0, 1
    for i in rows:
        residue, modulus = _aligned(rows, i, residue, modulus, distance[i], int(problem.alignment[i]))
    shift = {i: d + residue for i, d in distance.items()}
    size = max(shift[i] + int(problem.size[i]) for i in rows)
    if max(size, modulus) >= 2**62:
        raise ProblemError(f"the group of blocks {rows} exceeds 64-bit integers once all are aligned")
    fixed = -1
    for i in rows:
        if problem.fixed[i] >= 0:
            base = int(problem.fixed[i]) - shift[i]
            if base < 0 or fixed not in (-1, base):
                raise ProblemError(
                    f"block {i} is fixed at {problem.fixed[i]}, which the other blocks of its group {rows} rule out"
                )
            fixed = base
    _refuse_overlap(problem, rows, shift)
    return _Compound(
        shift,
        size,
        int(problem.start[rows].min()),
        int(problem.end[rows].max()),
        modulus,
        fixed,
        _steps(problem, rows, shift),
    )


def _aligned(
    rows: list[int], i: int, residue: int, modulus: int, distance: int, alignment: int
) -> tuple[int, int]:
    """Add to "the lowest member is at ``residue`` modulo ``modulus``" that block i is aligned."""
    common = math.gcd(modulus, alignment)
    wanted = -distance % alignment
    if (wanted - residue) % common:
        raise ProblemError(
            f"the group of blocks {rows} cannot be: block {i} is not a multiple of its alignment {alignment} "
            f"where the others are aligned"
        )
    step = (wanted - residue) // common * pow(modulus // common, -1, alignment // common)
    whole = modulus // common * alignment
    return (residue + modulus * step) % whole, whole


def _refuse_overlap(problem: Problem, rows: list[int], shift: dict[int, int]) -> None:
    of, start, end, low, high = _rectangles(problem.pieces(), rows, shift)
    for k in range(len(of)):
        hits = (start[k] < end) & (start < end[k]) & (low[k] < high) & (low < high[k]) & (of > of[k])
        if hits.any():
            raise ProblemError(
                f"blocks {of[k]} and {of[hits.argmax()]} conflict where the contiguous groups put them"
            )


def _rectangles(pieces: Pieces, rows: list[int], shift: dict[int, int]) -> tuple[IntArray, ...]:
    of = np.array([i for i in rows for _ in range(pieces.first[i], pieces.first[i + 1])], dtype=np.int64)
    at = np.array([k for i in rows for k in range(pieces.first[i], pieces.first[i + 1])], dtype=np.int64)
    base = np.array([shift[i] for i in of.tolist()], dtype=np.int64)
    return of, pieces.start[at], pieces.end[at], base + pieces.lower[at], base + pieces.upper[at]


def _steps(problem: Problem, rows: list[int], shift: dict[int, int]) -> list[tuple[int, int, int, int, int]]:
    _, start, end, low, high = _rectangles(problem.pieces(), rows, shift)
    steps: list[tuple[int, int, int, int, int]] = []
    for t0, t1 in pairwise(np.unique(np.concatenate([start, end])).tolist()):
        alive = np.flatnonzero((start <= t0) & (t1 <= end))
        if not len(alive):
            continue
        occupied = int((high[alive] - low[alive]).sum())
        step = (t0, t1, int(low[alive].min()), int(high[alive].max()), occupied)
        if steps and steps[-1][1] == t0 and steps[-1][2:] == step[2:]:
            steps[-1] = (steps[-1][0], *step[1:])
        else:
            steps.append(step)
    return steps


def _assembled(problem: Problem, kept: IntArray, built: dict[int, _Compound]) -> Problem:
    """Put compounds in the place of their first rows."""
    columns = {name: getattr(problem, name)[kept] for name in COLUMNS}
    alone = np.array([int(i) not in built for i in kept])
    position = np.full(len(problem), -1, dtype=np.int64)
    position[kept[alone]] = np.flatnonzero(alone)
    gaps = problem.gaps.copy()
    gaps[:, 0] = position[gaps[:, 0]]
    rows: list[tuple[int, int, int, int, int]] = [tuple(row) for row in gaps[gaps[:, 0] >= 0].tolist()]
    for k in np.flatnonzero(~alone).tolist():
        compound = built[int(kept[k])]
        for name in columns:
            columns[name][k] = getattr(compound, name)
        now = compound.start
        for start, end, lower, upper, _ in compound.steps:
            if now < start:
                rows.append((k, now, start, 0, 0))
            if upper - lower < compound.size:
                rows.append((k, start, end, lower, upper))
            now = end
        if now < compound.end:
            rows.append((k, now, compound.end, 0, 0))
    return Problem(**columns, gaps=np.array(rows, dtype=np.int64).reshape(-1, 5))


def _occupied(
    real: Problem, compounds: dict[int, list[tuple[int, int, int, int, int]]]
) -> tuple[IntArray, IntArray, IntArray]:
    pieces = real.pieces()
    of = np.repeat(np.arange(len(real)), np.diff(pieces.first))
    alone = ~np.isin(of, list(compounds))
    steps = np.array([step for steps in compounds.values() for step in steps], dtype=np.int64).reshape(-1, 5)
    columns = (pieces.start, pieces.end, pieces.upper - pieces.lower)
    tied = (steps[:, 0], steps[:, 1], steps[:, 4])
    start, end, width = (np.concatenate([a[alone], b]) for a, b in zip(columns, tied, strict=True))
    return start, end, width


def _kept_apart(problem: Problem, real: Problem, block: IntArray, shift: IntArray) -> tuple[Problem, int]:
    """Add a tick for each pair kept apart; returns the problem and the bytes of the largest pair."""
    if not len(problem.apart):
        return real, 0
    pairs = problem.apart[(problem.size[problem.apart] > 0).all(axis=1)]
    largest = int(problem.size[pairs].sum(axis=1).max(initial=0))
    tied = block[pairs[:, 0]] == block[pairs[:, 1]]
    for i, j in pairs[tied].tolist():
        low, high = (i, j) if shift[i] <= shift[j] else (j, i)
        if shift[low] + problem.size[low] > shift[high]:
            raise ProblemError(f"blocks {i} and {j} are to lie apart, but groups demand that they overlap")
    # One row for each block and tick: the block is absent from its end, or its last such tick, until this one.
    row = pairs[~tied].T.ravel()
    tick = np.tile(int(real.end.max()) + np.arange(len(row) // 2), 2)
    order = np.lexsort((tick, block[row]))
    row, tick = row[order], tick[order]
    of = block[row]
    first = np.append(True, of[1:] != of[:-1])[: len(of)]
    since = np.where(first, real.end[of], np.roll(tick, 1) + 1)
    size, zero = problem.size[row], np.zeros_like(of)
    absent = np.stack([of, since, tick, zero, zero], axis=1)[since < tick]
    partly = np.stack([of, tick, tick + 1, shift[row], shift[row] + size], axis=1)[size < real.size[of]]
    end = real.end.copy()
    np.maximum.at(end, of, tick + 1)
    return changed(real, end=end, gaps=np.concatenate([real.gaps, absent, partly])), largest
