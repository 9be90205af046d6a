"""The examples of docs/extending.rst pass the contract suites that their page names."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..contracts.backend import BackendContract
from ..contracts.importer import ImporterContract
from ..contracts.order_solver import OrderSolverContract
from ..contracts.packing_solver import PackingSolverContract
from ..contracts.schedule_solver import ScheduleSolverContract
from ..properties.pool_program import Backend, make_pool
from .examples import example, registered


@pytest.fixture(scope="module", autouse=True)
def examples() -> Iterator[None]:
    with registered("packing_solver", "schedule_solver", "order_solver", "importer"):
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
        options = {"warmup": 0, "planning_share": math.inf, **options}
        self.pool = make_pool(example("host_backend").BufferPool, file, **options)

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


class TestMtrace(ImporterContract):
    name = "mtrace"
    sample = b"""\
= Start
@ ./solver:(step+0x1d)[0x55d0f1b2a1d1] + 0x55d0f2c3e2a0 0x400
@ ./solver:(step+0x2b)[0x55d0f1b2a1df] + 0x55d0f2c3e6b0 0x1000
@ ./solver:(step+0x31)[0x55d0f1b2a1e5] - 0x55d0f2c3e2a0
@ ./solver:(grow+0x11)[0x55d0f1b2a211] < 0x55d0f2c3e6b0
@ ./solver:(grow+0x11)[0x55d0f1b2a211] > 0x55d0f2c40000 0x2000
@ ./solver:(grow+0x31)[0x55d0f1b2a231] + (nil) 0x7fffffffffffffff
@ ./solver:(grow+0x31)[0x55d0f1b2a231] - 0x55d0f2c40000
= End
"""


def test_mtrace_has_sizes_and_callers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(TestMtrace.sample)
    profile = example("importer").read(path)
    assert profile.size.tolist() == [0x400, 0x1000, 0x2000]
    assert profile.end.tolist() == [2, 3, 5]
    assert profile.sites[0] == "./solver:(step+0x1d)[0x55d0f1b2a1d1]"
