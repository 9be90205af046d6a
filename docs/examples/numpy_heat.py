"""A program on NumPy whose step repeats: heat on a plate."""

import numpy as np

from stowplan import NumpyPool


def advance(plate, rate):
    """Advance by one time step, in place."""
    edges = np.pad(plate, 1, mode="edge")
    flow = edges[:-2, 1:-1] + edges[2:, 1:-1] + edges[1:-1, :-2] + edges[1:-1, 2:] - 4 * plate
    plate += rate * flow


pool = NumpyPool()
plate = np.zeros((300, 300))
plate[100:200, 100:200] = 1.0
with pool:  # NumPy's allocations in this thread go through the pool
    for number in range(50):
        with pool.step():  # the code that repeats
            advance(plate, 0.2)
        if number == 5:
            pool.wait()  # only to make this example deterministic

print(f"the heat is still {plate.sum():.1f}")
print(pool.report())
assert pool.stats.replayed > 40 * len(pool.profile())
