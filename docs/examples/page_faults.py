"""A simulation that spends its time in page faults, without the pool and with it."""

import resource
from contextlib import nullcontext

import numpy as np

from stowplan import NumpyPool


def advance(height, before):
    """Advance a wave by one time step, in place; the temporaries are 18 MB each."""
    edges = np.pad(height, 1)
    bend = edges[:-2, 1:-1] + edges[2:, 1:-1] + edges[1:-1, :-2] + edges[1:-1, 2:] - 4 * height
    after = 2 * height - before + 0.1 * bend
    before[:] = height
    height[:] = after


def simulate(steps, step=nullcontext):
    """Return how many pages the kernel had to bring in the last time step."""
    height, before = np.ones((1500, 1500)), np.ones((1500, 1500))
    for _ in range(steps):
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with step():
            advance(height, before)
        pool.wait()  # only to make this example deterministic
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults


pool = NumpyPool()
many = simulate(12)
with pool:
    few = simulate(12, pool.step)
print(f"page faults in a time step: {many:,} without the pool, {few:,} with it")
print(f"{pool.stats.replayed} allocations replayed")
assert few < many
