"""Rank 0's CPU seconds for a message: ``mpiexec -n 2 python -m experiments.scale.rank BYTES COUNT``; JSON."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

TOGETHER = 64
"""Messages under way."""


def main() -> None:
    """Send messages to the other rank, and print the CPU seconds of each: what stands in line behind it waits for."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    size, count = map(int, sys.argv[1:])
    message = np.zeros(size, np.uint8)
    comm.Barrier()
    began = time.process_time()
    for _ in range(count // TOGETHER):
        if comm.rank == 0:
            MPI.Request.Waitall([comm.Isend(message, 1) for _ in range(TOGETHER)])
        else:
            for _ in range(TOGETHER):
                comm.Recv(message)
    used = time.process_time() - began
    if comm.rank == 0:
        print(json.dumps(used / (count // TOGETHER * TOGETHER)))


if __name__ == "__main__":
    main()
