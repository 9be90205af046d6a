"""Which requests of a plan a step's requests are.

Requests are told apart by the number of requests that their blocks live for, as that was when they were first seen: it
says which line of a loop's body asked, whatever the sizes. Lifetimes in the merged plan would not do: they grow as
requests are put in between.

Two matches (planning/merging/core/match.hpp): first of the few blocks that live for long, from one end to the other;
then of all, in a band around it. The long-lived blocks are freed where a loop runs back, and the plan says where its
own loop frees them: so they vote, and the first match is made anew, near to where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ._merging import match
from .merged import Merged
from .requests import NEVER, NONE, Frees, IntArray, Requests

LONG = 64
"""Requests; blocks that live for as many are matched first."""

LANDMARK = 256
"""Requests; blocks that live for more say where a step is. Those that pass from one iteration to the next do not."""

WIDTH = 100
"""Requests to either side of a match among which the next one looks."""

CELLS = 1 << 26
"""Most cells of one match, each a byte; a step that needs more is recorded anew."""


@dataclass(frozen=True, eq=False)
class Match:
    """Which requests of a plan a step's requests are.

    Attributes
    ----------
    number
        Each request's number in the plan, increasing, -1 for none, int64 (m,).
    """

    number: IntArray

    @property
    def found(self) -> int:
        """Requests that are in both."""
        return int((self.number >= 0).sum())

    @property
    def passed(self) -> IntArray:
        """Per request the last one of the plan's that was found up to it, -1 if there was none, int64 (m,)."""
        return np.maximum.accumulate(self.number)


def match_step(
    plan: Requests, known: Merged, step: Requests, frees: Frees, step_aside: Callable[[], object]
) -> Match | None:
    """Match a step with a plan.

    Parameters
    ----------
    plan, known
        The plan's requests (n,), and what is known of them.
    step, frees
        The step's requests (m,), and the frees of its own blocks.
    step_aside
        Called between pieces of the work; see `merge`.

    Returns
    -------
    The match; None if it takes more than `CELLS`.
    """
    n, m = len(plan), len(step)
    plan_kind, step_kind = _kind(known.life), _kind(step.life)
    lived_long = step.life[frees.request] > LANDMARK
    voters = Frees(frees.request[lived_long], frees.before[lived_long])
    number = np.full(m, NONE)

    # The long-lived ones alone: there, one says what its neighbours are.
    rows, columns = np.flatnonzero(known.life >= LONG), np.flatnonzero(step.life >= LONG)
    if len(rows) * len(columns) > CELLS:
        return None
    least, most = known.least[rows], plan.size[rows]
    band = np.zeros(len(rows) + 1, np.int64), np.full(len(rows) + 1, len(columns), np.int64)
    for _ in range(2):
        vote = _votes(voters, number, plan, known, rows, columns)
        found = match(least, most, plan_kind[rows], step.size[columns], step_kind[columns], vote, *band)
        pairs = found >= 0
        number[columns] = NONE
        number[columns[pairs]] = rows[found[pairs]]
        band = _band(found, len(rows), len(columns))
        step_aside()

    band = _band(number, n, m)
    if int((band[1] - band[0] + 1).sum()) > CELLS:
        return None
    vote = _votes(voters, number, plan, known, np.arange(n), np.arange(m))
    return Match(match(known.least, plan.size, plan_kind, step.size, step_kind, vote, *band))


def _votes(
    voters: Frees, number: IntArray, plan: Requests, known: Merged, rows: IntArray, columns: IntArray
) -> IntArray:
    """Return where the frees of long-lived blocks say that the requests after them are, by row; -1 for nowhere."""
    slot = number[voters.request]
    counts = (slot >= 0) & (known.trust[slot] > 0)
    column = np.searchsorted(columns, voters.before[counts])
    row = np.searchsorted(rows, plan.due[slot[counts]])
    inside = (column < len(columns)) & (row < len(rows))
    vote = np.full(len(columns), NONE)
    vote[column[inside]] = row[inside]
    return vote


def _kind(life: IntArray) -> IntArray:
    """Tell short lifetimes, in requests, from each other, from longer ones and from those beyond the step."""
    return np.select([life <= 6, life < LONG, life < NEVER], [life, 7, 8], 9).astype(np.int64)


def _band(number: IntArray, n: int, m: int) -> tuple[IntArray, IntArray]:
    """Return the band around the pairs of a match, the rectangles between them included, two int64 (n + 1,)."""
    columns = np.flatnonzero(number >= 0)
    rows = np.concatenate([[-1], number[columns], [n]])
    columns = np.concatenate([[-1], columns, [m]])
    after = np.searchsorted(rows, np.arange(n + 1))
    first = np.maximum(columns[np.maximum(after - 1, 0)] + 1 - WIDTH, 0)
    last = np.minimum(columns[after] + WIDTH, m)
    first[0] = 0
    last[n] = m
    return np.minimum.accumulate(first[::-1])[::-1].copy(), np.maximum.accumulate(last)
