"""Dask: the predicted peak of each task as a resource, so that two large tasks do not meet on a worker."""

import numpy as np
from distributed import Client, LocalCluster

import stowplan
from stowplan.dask import MemoryPlugin, needs


def spread(x):
    """Return the sum of squares of the distances from the mean."""
    away = x - x.mean()
    return float((away * away).sum())


if __name__ == "__main__":
    prediction = stowplan.predict(spread, np.ones(1000))
    print(prediction.peak(x=10_000_000))
    with (
        LocalCluster(1, threads_per_worker=2, memory_limit="600 MiB", dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(MemoryPlugin(share=0.7))  # 420 MiB for tasks; a task takes 229 MiB
        large = needs(prediction, x=10_000_000)
        blocks = [client.submit(np.ones, 10_000_000, pure=False) for _ in range(2)]
        sums = [client.submit(spread, block, **large) for block in blocks]
        print("one after the other:", client.gather(sums))
