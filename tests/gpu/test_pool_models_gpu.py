"""The model of CuPy's pool beside CuPy's own in device memory."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.packing.pools import CupyPoolModel

from ..packing.without_ties import FREE, program_without_ties

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(3))
def test_the_same_bytes_after_every_request(cupy: Any, seed: int) -> None:
    pool, model = cupy.cuda.MemoryPool(), CupyPoolModel()
    live: dict[int, tuple[Any, int]] = {}
    for block, size in program_without_ties(seed):
        if size == FREE:
            model.free(live.pop(block)[1])
        else:
            live[block] = pool.malloc(size), model.malloc(size)
        assert (pool.total_bytes(), pool.used_bytes()) == (model.reserved, model.used)
