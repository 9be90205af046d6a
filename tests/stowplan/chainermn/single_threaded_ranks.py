"""MPI without MPI_THREAD_MULTIPLE: every rank plans alone, and is told why."""

from __future__ import annotations

import warnings

import mpi4py

mpi4py.rc.thread_level = "serialized"  # before MPI is imported

from mpi4py import MPI  # noqa: E402

from stowplan import NumpyPool  # noqa: E402
from stowplan.chainer import share_plans  # noqa: E402

pool = NumpyPool()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    share_plans(pool, MPI.COMM_WORLD)
assert pool.store is None
print(
    *(str(warning.message).replace("\n", " ") for warning in caught if "MPI" in str(warning.message)),
    flush=True,
)
