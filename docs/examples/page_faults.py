"""A simulation that spends its time in page faults, without the pool and with it."""

import resource

import numpy as np

from stowplan import NumpyPool

SHAPE = (1500, 1500)


def advance(height, before, speed):
    """Advance a wave by one time step, in place; the temporaries are 18 MB each."""
    edges = np.pad(height, 1)
    bend = edges[:-2, 1:-1] + edges[2:, 1:-1] + edges[1:-1, :-2] + edges[1:-1, 2:] - 4 * height
    after = 2 * height - before + speed * bend
    before[:] = height
    height[:] = after


def simulate(steps):
    """Return the wave, and how many pages the kernel had to bring in the last time step."""
    height, before = np.zeros(SHAPE), np.zeros(SHAPE)
    height[700:800, 700:800] = 1
    for number in range(steps):
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        advance(height, before, 0.1)
        if number == steps // 2:
            pool.wait()  # a program never has to; here it makes the figures the same each time
    return height, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults


pool = NumpyPool(auto_step=True)
plain, many = simulate(12)
with pool:
    pooled, few = simulate(12)
assert (pooled == plain).all()
print(f"page faults in a time step: {many:,} without the pool, {few:,} with it")
print(f"{pool.stats.replayed} requests replayed")
assert few < many
