"""A training loop on CuPy: a linear model by gradient descent. Needs a CUDA device."""

import cupy

from stowplan import CupyPool

pool = CupyPool()
cupy.cuda.set_allocator(pool.malloc)  # as one would set a MemoryPool's

data = cupy.random.RandomState(0)
x = data.standard_normal((10_000, 100), dtype=cupy.float32)
y = x @ data.standard_normal((100, 1), dtype=cupy.float32)
w = cupy.zeros((100, 1), dtype=cupy.float32)


def train(w):
    """Take one step of gradient descent, in place."""
    error = x @ w - y
    w -= 1e-5 * (x.T @ error)
    return float(cupy.abs(error).mean())


for number in range(100):
    with pool.step("train"):
        error = train(w)
    if number == 5:
        pool.wait()  # only to make this example deterministic

print(f"mean error {error:.4f}")
print(pool.report())
assert pool.stats.replayed > 90 * len(pool.profile())
