"""Generate packing problems of any size, for the benchmarks that have no recorded data.

Blocks arrive one by one. Sizes are ``512 round(2^U(0, 14))`` bytes, so that they spread over four orders of
magnitude; lifetimes are exponential, so that about ``live`` blocks are alive at a time. The logical clock
numbers the events.
"""

from __future__ import annotations

import numpy as np

from stowplan.packing import Problem


def generate(n: int, live: float, seed: int = 0) -> Problem:
    """Return a problem of ``n`` blocks of which about ``live`` are alive at a time.

    Parameters
    ----------
    n
        Blocks, 0 or more.
    live
        Mean lifetime in arrivals, which is the mean number alive away from the ends.
    seed
        The seed of NumPy's default generator.
    """
    rng = np.random.default_rng(seed)
    size = 512 * np.rint(2.0 ** rng.uniform(0, 14, n)).astype(np.int64)
    arrival = np.arange(n, dtype=np.float64)
    departure = arrival + rng.exponential(live, n)
    clock = np.empty(2 * n, dtype=np.int64)
    clock[np.argsort(np.concatenate([arrival, departure]), kind="stable")] = np.arange(2 * n)
    return Problem(size, clock[:n], clock[n:])
