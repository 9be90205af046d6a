"""Learn what a function of arrays needs, as laws of its lengths, from runs on small arrays.

::

    1  a first run        which axes are lengths of their own (`arguments.ties`)
    2  double the lengths until large blocks have 256 KiB, from which on NumPy computes in place
    3  run it again, and on other values            state, and sizes that depend on data: cannot tell
    4  run the points of the lattice                a law for each *moment* (`laws.Grid`)
    5  run two shapes more                          a law that misses one of them is none: once more, at double lengths

A moment is a request, if all runs make the same requests; or else a line, at its fullest request. The peak at other
lengths is that of the moment that has most alive there. A law that misses a shape by less than one unit of each length,
or a page, rounds (``n // 2``): such moments are predicted one unit and a page further, and so are never low.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .arguments import KINDS, VARIANTS, Axis, Lengths, is_array, small_array, ties
from .laws import Grid, Laws
from .runs import Run, run

__all__ = ["LEAST", "Model", "Moment", "learn", "sizes"]

LEAST, LEAST_OF_MANY = 36, 12
"""The shortest of the lengths tried, of up to two and of more; in steps of a third, so that quarters are whole."""
PAGE = 1 << 12
"""Bytes that a law may miss a shape by, and be added to it."""
IN_PLACE = 1 << 18
"""Bytes from which on NumPy computes in a temporary array's memory (NPY_MIN_ELIDE_BYTES)."""
ENOUGH, MOST = 1 << 20, 1 << 25
"""Bytes: of arguments, and of a peak, from which on lengths are not doubled."""
BUDGET = 1.0
"""Seconds that learning may take, if the function allows."""
MOST_LENGTHS, MOST_MOMENTS = 5, 200


@dataclass(frozen=True)
class Moment:
    """What is alive at one moment: rows of `Model.laws`.

    Attributes
    ----------
    live, results
        All bytes that were asked for, and those of results among them.
    lines
        By the line that asked.
    rounds
        Whether the law is met up to a rounding.
    """

    live: int
    results: int
    lines: Mapping[str, int]
    rounds: bool


@dataclass(frozen=True, eq=False)
class Model:
    """What a function needs as a function of lengths. Made by `learn`.

    Attributes
    ----------
    lengths
        Which axes make them.
    names
        Of the lengths, like ``x[0]``.
    laws, moments
        The moments that may be the fullest.
    below
        Pairs of lengths: the first was the smaller one in all runs.
    least_bytes
        Of the arguments, in the smallest run on which laws are.
    largest
        The most elements, bytes and longest axis of an argument in any run.
    only_equal
        Whether it follows a law only where the axes of a length are equal, and takes others.
    runs, seconds
        How many, and how long they took.
    cannot_tell
        Why the peak follows no law; empty if it does. Then the moments are those that do.
    """

    lengths: Lengths
    names: tuple[str, ...]
    laws: Laws
    moments: tuple[Moment, ...] = ()
    below: tuple[tuple[int, int], ...] = ()
    least_bytes: int = 0
    largest: tuple[int, int, int] = (0, 0, 0)
    only_equal: bool = False
    runs: int = 0
    seconds: float = 0.0
    cannot_tell: str = ""

    def fullest(self, lengths: Sequence[int]) -> tuple[int, int, dict[str, int]]:
        """Return the bytes alive at the fullest moment, those of results, and all of them by line."""
        best = self.fullest_moment(lengths)
        if best is None:
            return 0, 0, {}
        exact, above = self._at(lengths)
        at = above if best.rounds else exact
        lines = {line: max(int(at[row]), 0) for line, row in best.lines.items()}
        return max(int(at[best.live]), 0), max(int(at[best.results]), 0), lines

    def fullest_moment(self, lengths: Sequence[int]) -> Moment | None:
        """Return the moment with most bytes alive at some lengths."""
        exact, above = self._at(lengths)
        return max(self.moments, key=lambda m: int((above if m.rounds else exact)[m.live]), default=None)

    def _at(self, lengths: Sequence[int]) -> tuple[Any, Any]:
        """Return all rows at some lengths, and where one rounds, one unit further."""
        exact = self.laws.at(lengths)
        rounds = any(moment.rounds for moment in self.moments)
        return exact, self.laws.at([length + 1 for length in lengths]) + PAGE if rounds else exact


@dataclass
class _Learner:
    """One call of `learn`."""

    function: Callable[..., Any]
    examples: Sequence[Any]
    options: Mapping[str, Any]
    progress: Callable[[int, int], object] | None
    kind: str = KINDS[0]
    lengths: Lengths = field(default_factory=lambda: Lengths((), ()))
    repeats: int = 1
    runs: int = 0
    planned: int = 0

    def run(self, lengths: Sequence[int], kind: str = "", times: int = 0) -> list[Run]:
        shapes = self.lengths.shapes(self.examples, lengths)
        arguments = [
            small_array(value, shape, kind or self.kind, self.runs) if is_array(value) else value
            for value, shape in zip(self.examples, shapes, strict=True)
        ]
        found = run(self.function, arguments, self.options, times or self.repeats)
        self.runs += len(found)
        if self.progress is not None:
            self.progress(self.runs, max(self.planned, self.runs))
        return found

    @property
    def third(self) -> int:
        return (LEAST if len(self.lengths.axes) < 3 else LEAST_OF_MANY) // 3

    def base(self, doublings: int) -> tuple[int, ...]:
        third = self.third
        return tuple((3 * w + n) * third << doublings for n, w in enumerate(self.lengths.weight))

    def shaped(self, lengths: Sequence[int]) -> list[tuple[tuple[int, ...], Any]]:
        """Return the arrays' shapes and the arrays that they are of."""
        shapes = self.lengths.shapes(self.examples, lengths)
        return [(shape, value) for shape, value in zip(shapes, self.examples, strict=True) if is_array(value)]

    def bytes_at(self, lengths: Sequence[int]) -> int:
        return sum(value.dtype.itemsize * math.prod(shape) for shape, value in self.shaped(lengths))

    def begin(self, ways: Iterable[Lengths]) -> tuple[int, Run, float] | str:
        """Find lengths and values that the function takes, and double the lengths.

        Returns
        -------
        How often it doubled them, the run there, and by how much the last doubling slowed it; or the first error.
        """
        why, ways = "", list(ways)
        for kind in KINDS:
            for lengths in ways:
                if len(lengths.axes) > MOST_LENGTHS:
                    why = why or f"{len(lengths.axes)} lengths vary; expected at most {MOST_LENGTHS}"
                    continue
                self.kind, self.lengths = kind, lengths
                try:
                    self.run(self.base(0))  # the first run, which imports and compiles, is no measure
                    return self._climb()
                except Exception as error:  # any: it is the user's function
                    why = why or f"it fails on small arrays ({type(error).__name__}: {error})"
        return why

    def _climb(self) -> tuple[int, Run, float]:
        last, slower, k = self.run(self.base(0))[-1], 8.0, 0
        while self.lengths.axes and not self._enough(last, self.base(k)):
            taken = max(last.seconds, 1e-4)
            if taken * slower > BUDGET / 40:
                break
            k += 1
            last = self.run(self.base(k))[-1]
            slower = max(last.seconds / taken, 1.0)
        return k, last, slower

    def _enough(self, found: Run, lengths: Sequence[int]) -> bool:
        large = found.profile.size[found.profile.size * 32 >= found.peak]
        in_place = found.peak >= IN_PLACE and int(large.min(initial=found.peak)) > IN_PLACE * 5 // 4
        return found.peak >= MOST or in_place or self.bytes_at(lengths) >= 4 * ENOUGH

    def unsteady(self, lengths: Sequence[int]) -> str:
        """Run it again on equal and on other values; say what the peak depends on beside lengths."""
        slight = self.bytes_at(lengths) // 256
        peaks = [one.peak for one in self.run(lengths, times=2)]
        if peaks[0] != peaks[1]:
            peaks = [one.peak for one in self.run(lengths, times=4)]
            if peaks[-1] != peaks[-2]:
                return "equal calls need different bytes: it keeps some, or threads overlap"
            self.repeats = 2
        for kind in VARIANTS:
            try:
                found = self.run(lengths, kind)[-1].peak
            except Exception:  # they may be no values for it
                continue
            if abs(found - peaks[-1]) > slight + peaks[-1] // 256:
                self.kind = kind if found < peaks[-1] else self.kind  # the bytes that it is sure of
                return f"its bytes depend on the values: {peaks[-1]:,}, and {found:,} of {kind} ones"
        return ""


def learn(
    function: Callable[..., Any],
    examples: Sequence[Any],
    options: Mapping[str, Any],
    names: Sequence[str],
    free: frozenset[Axis] = frozenset(),
    fixed: frozenset[Axis] = frozenset(),
    progress: Callable[[int, int], object] | None = None,
    only: Lengths | None = None,
) -> Model:
    """Run a function on small arrays, and learn its laws.

    Parameters
    ----------
    function
        Is called some 20 times; what it does beside returning, it does as often.
    examples
        Its arguments; arrays are replaced by small ones of the same dtypes and ranks.
    options
        Its keywords.
    names
        Of the arguments.
    free, fixed
        Axes that vary although they are short, and others that do not.
    progress
        Called after each run with the number of runs, done and in all.
    only
        The lengths to vary. None: the most that the function takes; or fewer, if only then it follows a law.
    """
    began = time.perf_counter()
    one = _Learner(function, examples, options, progress)
    start = one.begin(ties(examples, free, fixed) if only is None else [only])
    if isinstance(start, str):
        return Model(Lengths((), ()), (), Grid((), (), 0).fit([]), runs=one.runs, cannot_tell=start)
    k, first, slower = start
    base = one.base(k)
    why = "it returns an iterator, whose work is still to be done" if first.lazy else one.unsteady(base)
    if not why and first.others:
        why = "other threads ask for memory, and how much of it at once is a matter of chance"
    while True:
        grid = Grid(base, tuple((w * one.third) << k for w in one.lengths.weight), 3 if len(base) < 4 else 2)
        one.planned = one.runs + len(grid.steps) + 2
        try:
            runs = [one.run(point)[-1] for point in grid.points]
            checks = _checks(grid, runs, first.seconds, slower) if base else []
            runs += [one.run(point)[-1] for point in checks]
        except Exception as error:  # any: it is the user's function
            why = f"it fails on small arrays ({type(error).__name__}: {error})"
            return Model(Lengths((), ()), (), Grid((), (), 0).fit([]), runs=one.runs, cannot_tell=why)
        moments, laws, missed = _moments(grid, runs, checks)
        why = why or _unseen(runs[-1], one.bytes_at((checks or [base])[-1]))
        spent = time.perf_counter() - began
        if why or not missed or spent * (1 + slower) > 2 * BUDGET or max(one.peak for one in runs) > MOST:
            break
        k, base = k + 1, one.base(k + 1)  # some blocks may have been below 256 KiB, and some above
    if missed and not why and only is None and spent < 2 * BUDGET:
        fewer = (way for way in ties(examples, free, fixed) if len(way.axes) < len(base))
        for way in fewer:  # of square matrices, say
            tied = learn(function, examples, options, names, free, fixed, progress, way)
            if not tied.cannot_tell:
                return replace(tied, only_equal=True, runs=one.runs + tied.runs, seconds=spent + tied.seconds)
    lengths = one.lengths
    labels = tuple(f"{names[axes[0][0]]}[{axes[0][1]}]" for axes in lengths.axes)
    below = [
        (i, j)
        for i in range(len(base))
        for j in range(len(base))
        if i != j and all(point[i] < point[j] for point in [*grid.points, *checks])
    ]
    return Model(
        lengths,
        labels,
        laws,
        moments,
        tuple(below),
        one.bytes_at(base),
        sizes([(shape, value.dtype) for n in [*grid.points, *checks] for shape, value in one.shaped(n)]),
        runs=one.runs,
        seconds=time.perf_counter() - began,
        cannot_tell=why or missed,
    )


def _unseen(found: Run, given: int) -> str:
    """Say that much memory is taken beside the arrays that the recorder sees, if it is."""
    if found.foreign:
        return "its result lies in memory that NumPy has not allocated, which is not seen"
    unseen = found.faults - 2 * int(
        found.profile.size.sum()
    )  # a page that is read and then written counts twice
    if unseen <= max(ENOUGH, (given + found.peak) // 10):
        return ""
    return f"it takes some {unseen:,} bytes beside NumPy's arrays, which are not seen, at the largest shape tried"


def sizes(arrays: Sequence[tuple[tuple[int, ...], Any]]) -> tuple[int, int, int]:
    """Return the most elements, the most bytes and the longest axis of some arrays, given as shape and dtype."""
    counts = [(math.prod(shape), math.prod(shape) * dtype.itemsize, max(shape)) for shape, dtype in arrays]
    most = [max((count[n] for count in counts), default=0) for n in range(3)]
    return most[0], most[1], most[2]


def _checks(grid: Grid, runs: list[Run], seconds: float, slower: float) -> list[tuple[int, ...]]:
    """Return two shapes that no law was made of: one between, of odd lengths, and one as far out as is cheap."""
    peak = grid.fit([[one.peak for one in runs]])
    out = [tuple(far * base + 1 + 2 * n for n, base in enumerate(grid.base)) for far in (4, 3)]
    cheap = [
        lengths
        for far, lengths in zip((4.0, 3.0), out, strict=True)
        if int(peak.at(lengths)[0]) <= 4 * MOST and seconds * slower ** math.log2(far) < BUDGET / 4
    ]
    near = tuple(
        2 * base + step + 1 + 2 * n for n, (base, step) in enumerate(zip(grid.base, grid.step, strict=True))
    )
    between = tuple(
        b + s + s // 2 + 5 - 2 * n for n, (b, s) in enumerate(zip(grid.base, grid.step, strict=True))
    )
    return [between, *(cheap or [near])[:1]]


def _moments(
    grid: Grid, runs: list[Run], checks: list[tuple[int, ...]]
) -> tuple[tuple[Moment, ...], Laws, str]:
    """Find the laws of the moments, and why the peak may follow none of them."""
    requests = _same_requests(runs)
    if requests is None:
        requests = _by_line(runs)
    live = np.array([one.live[at] for one, at in zip(runs, requests, strict=True)], dtype=np.int64).T
    n = len(grid.steps)
    unique: npt.NDArray[np.int64]
    unique, where = np.unique(live.reshape(-1, len(runs)), axis=0, return_index=True)
    laws = grid.fit(unique[:, :n])
    exact, rounds = _met(laws, unique[:, n:], checks)
    missed, peaks = "", [one.peak for one in runs]
    for row in np.flatnonzero(~(exact | rounds)).tolist():
        share = unique[row] / np.maximum(peaks, 1)
        if share.max() > 0.5 or share[-1] > share[0]:
            line = runs[-1].lines()[int(requests[-1][where[row]])]
            found, expected = unique[row, -1], laws.at(checks[-1])[row]
            missed = missed or (
                f"what is alive at {line} follows no law: {found:,} bytes at the largest shape tried, and "
                f"{expected:,} by the others"
            )
    kept = _undominated(laws, np.flatnonzero(exact | rounds))
    rows: list[list[int]] = []
    moments = []
    for row in kept[:MOST_MOMENTS]:
        parts = [one.at(int(at[where[row]])) for one, at in zip(runs[:n], requests, strict=False)]
        lines = sorted({line for _, by_line in parts for line in by_line})
        moments.append(
            Moment(
                len(rows),
                len(rows) + 1,
                {line: len(rows) + 2 + k for k, line in enumerate(lines)},
                bool(rounds[row]),
            )
        )
        rows += [unique[row, :n].tolist(), [results for results, _ in parts]]
        rows += [[by_line.get(line, 0) for _, by_line in parts] for line in lines]
    return tuple(moments), grid.fit(rows), missed


def _same_requests(runs: list[Run]) -> list[Any] | None:
    """Return each run's requests in order, if all runs ask for and free the same blocks; otherwise None."""
    first = runs[0].profile
    for one in runs[1:]:
        same = np.array_equal(one.profile.start, first.start) and np.array_equal(one.profile.end, first.end)
        if not same:
            return None
    return [np.arange(len(first))] * len(runs)


def _by_line(runs: list[Run]) -> list[Any]:
    """Return the fullest request of each line in each run; the lines that all runs have, in one order."""
    fullest: list[dict[str, int]] = []
    for one in runs:
        at: dict[str, int] = {}
        live = one.live.tolist()
        for request, line in enumerate(one.lines()):
            if line not in at or live[request] > live[at[line]]:
                at[line] = request
        fullest.append(at)
    shared = [line for line in fullest[0] if all(line in at for at in fullest)]
    return [np.array([at[line] for line in shared], dtype=np.int64) for at in fullest]


def _met(laws: Laws, found: Any, checks: list[tuple[int, ...]]) -> tuple[Any, Any]:
    """Which laws meet the shapes that they were not made of, and which only up to a rounding; bool (laws,) each."""
    exact = np.ones(len(found), dtype=bool)
    near = np.ones(len(found), dtype=bool)
    for k, lengths in enumerate(checks):
        predicted = laws.at(lengths)
        unit = abs(laws.at([length + 1 for length in lengths]) - predicted)
        off = abs(predicted - found[:, k].astype(object))
        exact &= np.asarray(off == 0, dtype=bool)
        near &= np.asarray((off <= unit) | ((off <= PAGE) & (off <= found[:, k] // 512)), dtype=bool)
    # A cubic term that is only rounding is small here, and large far out.
    cubic = [sum(point) > 2 and max(point) > 1 for point in laws.grid.steps]
    without = Laws(laws.grid, np.where(cubic, 0, laws.differences))
    far = [base * 32 for base in laws.grid.base]
    near &= np.asarray(abs(laws.at(far) - without.at(far)) * 100 <= abs(laws.at(far)), dtype=bool)
    return exact, near & ~exact


def _undominated(laws: Laws, rows: Any) -> list[int]:
    """Return the rows that no other one has all coefficients of, or larger ones; the largest constants first."""
    kept: list[int] = []
    differences = laws.differences
    order = sorted(rows.tolist(), key=lambda row: -int(laws.at(_far(laws.grid))[row])) if len(rows) else []
    for row in order:
        if not any(bool((differences[row] <= differences[other]).all()) for other in kept):
            kept.append(row)
    return kept


def _far(grid: Grid) -> list[int]:
    return [base * 1000 for base in grid.base]
