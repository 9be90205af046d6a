"""The examples of docs/extending.rst pass the contract suites that their page names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..contracts.backend import BackendContract
from ..contracts.order_solver import OrderSolverContract
from ..contracts.packing_solver import PackingSolverContract
from ..contracts.schedule_solver import ScheduleSolverContract
from ..properties.pool_program import Backend, make_pool
from .examples import example, registered


@pytest.fixture(scope="module", autouse=True)
def solvers() -> Iterator[None]:
    with registered("packing_solver", "schedule_solver", "order_solver"):
        yield


class TestLargestArea(PackingSolverContract):
    solver = "largest_area"


class TestLargestDropped(ScheduleSolverContract):
    solver = "largest_dropped"


class TestFewestAdded(OrderSolverContract):
    solver = "fewest_added"


class Buffers(Backend):
    """Buffers of `host_backend.BufferPool` for arbitrary programs."""

    def __init__(self, file: Path | None = None, **options: Any) -> None:
        self.pool = make_pool(example("host_backend").BufferPool, file, **{"warmup": 0, **options})

    def allocate(self, size: int, zeroed: bool) -> Any:
        return self.pool.buffer(size)

    def address(self, array: Any) -> int:
        return int(array.address)


class TestBufferPool(BackendContract):
    backend = Buffers


def test_numpy_sees_a_buffer() -> None:
    host = example("host_backend")
    array = np.asarray(host.BufferPool().buffer(1000))
    array[:] = 7
    assert array.tobytes() == b"\7" * 1000
