"""Moments of a function's runs: formulas of what is alive at each, checked at shapes that they were not made of.

A moment is a request, if all runs make the same requests; or else a line, at its fullest request. The peak at other
lengths is that of the moment that has most alive there. A formula that misses a shape by less than one unit of each
length, or a page, rounds (``n // 2``): such candidates are predicted one unit and a page further, and so are never low.

For r runs of q requests, of which m are unlike the others: one fit of m formulas (`size_formulas.Grid.fit`), and O(m^2)
comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .size_formulas import Formulas, Grid
from .traced_run import Run

PAGE = 1 << 12
"""Bytes that a formula may miss a shape by, and be added to it."""
IN_PLACE = 1 << 18
"""Bytes from which on NumPy computes in a temporary array's memory (NPY_MIN_ELIDE_BYTES)."""
MOST_MOMENTS = 200


class PeakCandidate(NamedTuple):
    """What is alive at one moment: formulas of all bytes, of those of results, and of those by the line that asked."""

    formulas: Formulas
    lines: tuple[str, ...]
    rounds: bool
    """Whether the formulas are met up to a rounding."""

    def at(self, lengths: Sequence[int]) -> tuple[int, int, dict[str, int]]:
        """Return the bytes at some lengths, never below 0; if they round, one unit and a page further."""
        found = self.formulas.at([length + self.rounds for length in lengths]) + PAGE * self.rounds
        live, results, *by_line = np.maximum(found, 0).tolist()
        return live, results, dict(zip(self.lines, by_line, strict=True))


Candidates = tuple[PeakCandidate, ...]
NOTHING = PeakCandidate(Formulas((), np.zeros((2, 0), dtype=object)), (), rounds=False)


def candidates_of(grid: Grid, runs: list[Run], checks: list[tuple[int, ...]]) -> tuple[Candidates, str]:
    """Find the formulas of the candidates, and why the peak may follow none of them."""
    requests = _requests(runs)
    live = np.array([np.append(one.live, 0)[at] for one, at in zip(runs, requests, strict=True)]).T
    n = len(grid.steps)
    unique: npt.NDArray[np.int64]
    unique, where = np.unique(live.reshape(-1, len(runs)), axis=0, return_index=True)
    formulas = grid.fit(unique[:, :n])
    exact, rounds = _met(formulas, unique[:, n:], checks, grid.base)
    missed, peaks = "", [one.peak for one in runs]
    for row in np.flatnonzero(~(exact | rounds)).tolist():
        share = (unique[row] / np.maximum(peaks, 1))[unique[row] > 0]
        if share.max() > (0.5 if len(share) == len(peaks) else 0.125) or share[-1] > share[0]:
            most = int(unique[row].argmax())
            line = runs[most].lines()[int(requests[most][where[row]])]
            off, lengths = max(
                (abs(formulas.at(one)[row] - unique[row, n + k]), one) for k, one in enumerate(checks)
            )
            missed = missed or (
                f"what is alive at {line} follows no formula: its bytes at lengths of "
                f"{', '.join(f'{length:,}' for length in lengths)} are {off:,} off"
            )
    kept = _undominated(formulas, np.flatnonzero(exact | rounds), grid.base)
    candidates = []
    for row in kept[:MOST_MOMENTS]:
        asked = [(one, int(at[where[row]])) for one, at in zip(runs[:n], requests, strict=False)]
        parts = [one.at(at) if at >= 0 else (0, {}) for one, at in asked]
        lines = sorted({line for _, by_line in parts for line in by_line})
        by_line = [[counts.get(line, 0) for _, counts in parts] for line in lines]
        formulas = grid.fit([unique[row, :n].tolist(), [results for results, _ in parts], *by_line])
        candidates.append(PeakCandidate(formulas, tuple(lines), bool(rounds[row])))
    return tuple(candidates), missed


def below(points: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of lengths of which the first is the smaller one at all points."""
    count = range(len(points[0]))
    return tuple((i, j) for i in count for j in count if all(point[i] < point[j] for point in points))


def _requests(runs: list[Run]) -> list[Any]:
    """Return each run's requests in order, if all request and free the same blocks; or else each line's fullest one.

    A line that a run does not come to has -1 there: the length decides (odd or even, a power of two), which is no
    formula.
    """
    if len({(one.profile.start.tobytes(), one.profile.end.tobytes()) for one in runs}) == 1:
        return [np.arange(len(runs[0].profile))] * len(runs)
    fullest: list[dict[str, int]] = []
    for one in runs:
        lines, falling = one.lines(), np.argsort(-one.live, kind="stable").tolist()
        fullest.append({lines[request]: request for request in reversed(falling)})
    every = sorted(set().union(*fullest))
    return [np.array([at.get(line, -1) for line in every], dtype=np.int64) for at in fullest]


def _met(tried: Formulas, found: Any, checks: list[tuple[int, ...]], least: Sequence[int]) -> tuple[Any, Any]:
    """Which formulas meet shapes that they were not made of, and which only up to a rounding; bool (formulas,) each."""
    exact, near = np.ones((2, len(found)), dtype=bool)
    for k, lengths in enumerate(checks):
        predicted = tried.at(lengths)
        unit = abs(tried.at([length + 1 for length in lengths]) - predicted)
        off = abs(predicted - found[:, k].astype(object))
        exact &= np.asarray(off == 0, dtype=bool)
        near &= np.asarray((off <= unit) | ((off <= PAGE) & (off <= found[:, k] // 512)), dtype=bool)
    # A cubic term that is only rounding is small here, and large far out.
    cubic = [sum(powers) > 2 and max(powers) > 1 for powers in tried.powers]
    without = replace(tried, factors=np.where(cubic, 0, tried.factors))
    far = [length * 32 for length in least]
    near &= np.asarray(abs(tried.at(far) - without.at(far)) * 100 <= abs(tried.at(far)), dtype=bool)
    return exact, near & ~exact


def _undominated(formulas: Formulas, rows: Any, least: Sequence[int]) -> list[int]:
    """Return the rows that no other one has all coefficients of, or larger ones; the largest constants first."""
    kept: list[int] = []
    factors, far = formulas.factors, formulas.at([length * 1000 for length in least])
    for row in sorted(rows.tolist(), key=lambda row: -int(far[row])):
        if not any(bool((factors[row] <= factors[other]).all()) for other in kept):
            kept.append(row)
    return kept
