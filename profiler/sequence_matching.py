"""Pair the requests of two steps that differ in a few requests.

The same program requests slightly different blocks at different batch sizes: NumPy, for one, computes ``a * b + c`` in
the memory of ``a * b`` if that temporary has 256 KiB or more, and requests another block if it has less::

    batch 2     2048   200704   200704   4   200704            200704
                 |       |        |      |      -                |
    batch 4     2048   401408   401408   4             4       401408

Pairs are found by Myers's greedy algorithm ("An O(ND) difference algorithm and its variations", 1986): the fewest
requests D are left without a partner, in O((n + m) D).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .events import IntArray


def match_sequences(n: int, m: int, same: Callable[[int, int], bool], most: int) -> IntArray | None:
    """Pair two sequences in order, leaving as few as possible without a partner.

    Parameters
    ----------
    n, m
        Their lengths.
    same
        Whether item i of the first can be item j of the second.
    most
        How many items of both together may be left without a partner.

    Returns
    -------
    int64 (k, 2), the pairs i, j, both rising; None if more than ``most`` would be left.
    """
    # reached[d][k] is the largest i that d single items lead to on the diagonal k = i - j.
    reached: list[dict[int, int]] = []
    for d in range(min(most, n + m) + 1):
        row: dict[int, int] = {}
        for k in range(-d, d + 1, 2):
            i = _entered(reached[-1], k, n, m) if d else 0
            if i is None:
                continue
            while i < n and i - k < m and same(i, i - k):
                i += 1
            row[k] = i
        reached.append(row)
        if row.get(n - m) == n:
            return _pairs(reached, n, m)
    return None


def _entered(before: dict[int, int], k: int, n: int, m: int) -> int | None:
    """Return the largest i at which one item without a partner leads to the diagonal k; None if none does."""
    first = before.get(k - 1, n) + 1  # skips one item of the first sequence
    second = before.get(k + 1, -1)  # skips one of the second
    first = -1 if first > n else first
    second = -1 if second - k > m else second
    return max(first, second) if max(first, second) >= 0 else None


def _pairs(reached: list[dict[int, int]], n: int, m: int) -> IntArray:
    pairs: list[tuple[int, int]] = []
    i, k = n, n - m
    for d in range(len(reached) - 1, -1, -1):
        began = _entered(reached[d - 1], k, n, m) if d else 0
        assert began is not None  # the search came this way
        pairs += [(x, x - k) for x in range(i - 1, began - 1, -1)]
        if d:
            i, k = (began - 1, k - 1) if reached[d - 1].get(k - 1, n) + 1 == began else (began, k + 1)
    return np.array(pairs[::-1], dtype=np.int64).reshape(-1, 2)
