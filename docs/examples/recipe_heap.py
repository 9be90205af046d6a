"""The pool's heap for all threads of each process of an executor: no step is marked, and nothing replayed."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np

from stowplan import NumpyPool

pool = NumpyPool()  # one in each process that has this module


def begin():
    """Serve all threads of this process, those that run already too."""
    pool.serve_by_heap()
    pool.install()


def total(image):
    """Return a sum, and how many allocations the heap of this process has served."""
    return float((image * 2 + 1).sum()), pool.stats.reasons["heap_only"]


if __name__ == "__main__":
    images = [np.arange(20_000.0) + k for k in range(100)]
    with ProcessPoolExecutor(2, initializer=begin) as executor:
        print(max(count for _, count in executor.map(total, images)), "allocations, none replayed")
