"""The pool's heap for all threads of a process, and of each process of an executor: no step is marked."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

from stowplan import NumpyPool

pool = NumpyPool()  # one in each process that has this module


def begin():
    """Serve all threads of this process, those that run already too."""
    pool.serve_by_heap()
    pool.install()


def smooth(image):
    """Return a moving average."""
    wide = np.pad(image, 1, mode="wrap")
    return (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4


def counts(_number):
    """Return how many allocations this process's heap has served."""
    return pool.stats.reasons["heap_only"]


if __name__ == "__main__":
    images = [np.arange(20_000.0) + k for k in range(100)]
    with ProcessPoolExecutor(1, initializer=begin) as executor:
        list(executor.map(smooth, images))
        print(f"a process of the executor: {executor.submit(counts, 0).result():,} allocations")
    begin()
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(smooth, images))
    print(f"this process: {counts(0):,} allocations, {pool.stats.replayed} of them replayed")
