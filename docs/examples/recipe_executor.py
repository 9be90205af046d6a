"""A pool in the threads and processes of executors: each call is a step."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

from stowplan import NumpyPool

pool = NumpyPool(warmup=0)  # one in each process that has this module


def smooth(image):
    """Return a moving average; the caller keeps it for as long as it likes."""
    with pool.serving(), pool.step(f"smooth {image.shape}", keeps_results=True):
        wide = np.pad(image, 1, mode="wrap")
        return (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4


def smooth_and_count(image):
    """Return it, and how many allocations this process has had from plans."""
    return smooth(image), pool.stats.replayed


if __name__ == "__main__":
    images = [np.arange(20_000.0) + k for k in range(1000)]
    for executor in (ProcessPoolExecutor(2), ThreadPoolExecutor(2)):
        with executor:
            replayed = max(count for _, count in executor.map(smooth_and_count, images))
        print(f"{type(executor).__name__}: {replayed:,} allocations replayed in a process")
        assert replayed > 0
