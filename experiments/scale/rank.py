"""Rank 0's seconds for a message: ``mpiexec -n N python -m experiments.scale.rank BYTES COUNT``; JSON."""

from __future__ import annotations

import json
import sys
import time

import numpy as np


def main() -> None:
    """Send COUNT messages to each other rank, all under way at once, as `stowplan.chainer.share_plans` does."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    size, count = map(int, sys.argv[1:])
    message = np.zeros(size, np.uint8)
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(count):
        if comm.rank == 0:
            MPI.Request.Waitall([comm.Isend(message, rank) for rank in range(1, comm.size)])
        else:
            comm.Recv(message)
    comm.Barrier()
    if comm.rank == 0:
        print(json.dumps((time.perf_counter() - began) / (count * (comm.size - 1))))


if __name__ == "__main__":
    main()
