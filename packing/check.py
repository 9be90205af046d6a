"""Is a placement valid? Two answers that share no code with any solver, nor with each other.

A placement is valid when every offset is at least 0, a multiple of the block's alignment and the fixed one
where one is demanded, and no two blocks conflict: no piece of one and piece of another overlap both in time
and in address. Blocks tied to each other obey their tie as well: two kept apart overlap in address at no time, and
contiguous ones follow each other without a gap.

`check` compares every pair of blocks: quadratic and obvious, for tests. `check_fast` sweeps over time with
the live address ranges in an ordered map, O(k log k) for k pieces, and runs on everything that is handed out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..common.errors import ConflictError, ProblemError
from . import _solvers
from .problem import IntArray, Problem


def check(problem: Problem, offsets: npt.ArrayLike) -> None:
    """Raise unless the placement is valid; compares all pairs.

    Parameters
    ----------
    problem
        n blocks.
    offsets
        Bytes, integers (n,).

    Raises
    ------
    ConflictError
        Naming the first block that breaks a rule by itself, or else the first pair (i, j), i < j, in
        conflict, with its lifetimes and address ranges.
    ProblemError
        The offsets are not n integers.
    """
    x = _offsets(problem, offsets)
    _check_each(problem, x)
    _check_ties(problem, x)
    # Not Problem.pieces(): the validator derives the rectangles on its own.
    of, start, end, low, high = _rectangles(problem, x)
    for i in range(len(problem)):
        first, last = np.searchsorted(of, (i, i + 1))
        partner: tuple[int, int, int] | None = None
        for mine in range(first, last):
            overlap = start[last:] < end[mine]
            overlap &= start[mine] < end[last:]
            overlap &= low[last:] < high[mine]
            overlap &= low[mine] < high[last:]
            hits = np.flatnonzero(overlap)
            if len(hits):
                theirs = int(last + hits[0])
                partner = min(partner or (len(problem), 0, 0), (int(of[theirs]), mine, theirs))
        if partner is not None:
            j, mine, theirs = partner
            one, other = (tuple(int(c[k]) for c in (start, end, low, high)) for k in (mine, theirs))
            raise ConflictError(_message(problem, i, one, j, other), (i, j))


def check_fast(problem: Problem, offsets: npt.ArrayLike) -> None:
    """Raise unless the placement is valid; one sweep over time.

    Parameters and errors are those of `check`; the pair named is the first that the sweep meets.
    """
    x = _offsets(problem, offsets)
    _check_each(problem, x)
    _check_ties(problem, x)
    pieces = problem.pieces()
    of = np.repeat(np.arange(len(problem)), np.diff(pieces.first))
    base = x[of]
    columns = pieces.start, pieces.end, base + pieces.lower, base + pieces.upper
    hit = _solvers.first_conflict(*columns)
    if hit is None:
        return
    mine, theirs = sorted(hit, key=lambda k: int(of[k]))
    one, other = (tuple(int(c[k]) for c in columns) for k in (mine, theirs))
    i, j = int(of[mine]), int(of[theirs])
    raise ConflictError(_message(problem, i, one, j, other), (i, j))


def _offsets(problem: Problem, offsets: npt.ArrayLike) -> IntArray:
    x = np.asarray(offsets)
    if x.shape != (len(problem),) or (x.size and x.dtype.kind not in "iu"):
        raise ProblemError(f"the offsets are {x.dtype} {x.shape}; expected integers ({len(problem)},)")
    return x.astype(np.int64)


def _check_each(problem: Problem, x: IntArray) -> None:
    """Rules that a block breaks alone."""
    size, alignment, fixed = problem.size, problem.alignment, problem.fixed
    bad = (x < 0) | (x > np.iinfo(np.int64).max - size) | (x % alignment != 0) | ((fixed >= 0) & (x != fixed))
    if not bad.any():
        return
    i = int(bad.argmax())
    if x[i] < 0:
        rule = "expected 0 or more bytes"
    elif fixed[i] >= 0 and x[i] != fixed[i]:
        rule = f"it is fixed at {fixed[i]}"
    elif x[i] % alignment[i]:
        rule = f"expected a multiple of its alignment {alignment[i]}"
    else:
        rule = "its end exceeds 64-bit integers"
    raise ConflictError(f"{_name(problem, i)} is placed at {x[i]}; {rule}", (i, i))


def _check_ties(problem: Problem, x: IntArray) -> None:
    """Rules between blocks that hold whatever their lifetimes."""
    if not problem.constrained:
        return
    for group in problem.contiguous:
        expected = x[group[:-1]] + problem.size[group[:-1]]
        for k in np.flatnonzero(x[group[1:]] != expected)[:1].tolist():
            i, j = int(group[k]), int(group[k + 1])
            rule = f"expected {expected[k]}, the end of {_name(problem, i)}: they are contiguous"
            raise ConflictError(f"{_name(problem, j)} is placed at {x[j]}; {rule}", (i, j))
    one, other = problem.apart.T
    end = x + problem.size
    bad = (x[one] < end[other]) & (x[other] < end[one]) & (problem.size[one] > 0) & (problem.size[other] > 0)
    for k in np.flatnonzero(bad)[:1].tolist():
        i, j = int(one[k]), int(other[k])
        where = [f"{_name(problem, b)} occupies bytes [{x[b]}, {end[b]})" for b in (i, j)]
        raise ConflictError(
            f"conflict: {where[0]}; {where[1]}; expected disjoint ranges: they are apart", (i, j)
        )


def _rectangles(problem: Problem, x: IntArray) -> tuple[IntArray, ...]:
    """Where each block is, as columns (block, start, end, low, high); blocks in order."""
    gaps: dict[int, list[list[int]]] = {}
    for block, *gap in problem.gaps.tolist():
        gaps.setdefault(block, []).append(gap)
    rows: list[tuple[int, int, int, int, int]] = []
    columns = zip(
        problem.start.tolist(), problem.end.tolist(), x.tolist(), problem.size.tolist(), strict=True
    )
    for block, (start, end, base, size) in enumerate(columns):
        for t0, t1, lower, upper in gaps.get(block, ()):
            rows.append((block, start, t0, base, base + size))
            rows.append((block, t0, t1, base + lower, base + upper))
            start = t1
        rows.append((block, start, end, base, base + size))
    solid = [row for row in rows if row[1] < row[2] and row[3] < row[4]]
    return tuple(np.array(solid, dtype=np.int64).reshape(-1, 5).T.copy())


def _name(problem: Problem, i: int) -> str:
    return f"block {i}" if problem.id is None or problem.id[i] == str(i) else f"block {i} ({problem.id[i]})"


def _message(problem: Problem, i: int, one: tuple[int, ...], j: int, other: tuple[int, ...]) -> str:
    def where(k: int, piece: tuple[int, ...]) -> str:
        return (
            f"{_name(problem, k)}, alive in [{piece[0]}, {piece[1]}), occupies bytes [{piece[2]}, {piece[3]})"
        )

    return f"conflict: {where(i, one)}; {where(j, other)}"
