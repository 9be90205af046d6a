"""A pool in the threads and processes of executors: each call is a step."""

import asyncio
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

from stowplan import NumpyPool

pool = NumpyPool(warmup=0)  # one in each process that has this module


def smooth(image):
    """Return a moving average; the caller keeps it for as long as it likes."""
    with pool.serving(), pool.step(f"smooth {image.shape}", keeps_results=True):
        wide = np.pad(image, 1, mode="wrap")
        return (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4


def counts(_number):
    """Return how many allocations this process has had from plans."""
    pool.wait()
    return pool.stats.replayed


if __name__ == "__main__":
    images = [np.arange(20_000.0) + k for k in range(100)]
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(smooth, images[:10]))
        pool.wait()  # only to make this example deterministic
        list(executor.map(smooth, images))
    print(f"threads: {pool.stats.replayed:,} allocations replayed of {pool.stats.requests:,}")
    assert pool.stats.replayed > 200

    asyncio.run(asyncio.to_thread(smooth, images[0]))

    with ProcessPoolExecutor(1) as executor:
        list(executor.map(smooth, images[:10]))
        before = executor.submit(counts, 0).result()
        list(executor.map(smooth, images))
        print(f"a process: {executor.submit(counts, 0).result() - before:,} allocations replayed")
