"""The models of pools beside the real ones in device memory: the same bytes reserved after every request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stowplan.insight.pool_models import POOL_MODELS

from ..stowplan.insight.pool_models.without_ties import FREE, program_without_ties

pytestmark = pytest.mark.gpu


def assert_equal(
    name: str,
    seed: int,
    malloc: Callable[[int], Any],
    free: Callable[[Any, int], object],
    reserved: Callable[[], int],
) -> None:
    model = POOL_MODELS[name]()
    live: dict[int, tuple[Any, int, int]] = {}
    for block, size in program_without_ties(name, seed):
        if size == FREE:
            memory, handle, asked = live.pop(block)
            free(memory, asked)
            del memory
            model.free(handle)
        else:
            live[block] = malloc(size), model.malloc(size), size
        assert reserved() == model.reserved
    for memory, _, asked in live.values():
        free(memory, asked)


@pytest.mark.parametrize("name", ["pytorch", "pytorch-expandable"])
def test_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; expected: a build for CUDA")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device; expected: a build for CUDA, and a device")
    memory = torch.cuda.memory

    def malloc(size: int) -> Any:
        return memory.caching_allocator_alloc(size) if size else 0

    def free(pointer: Any, size: int) -> None:
        if size:
            memory.caching_allocator_delete(pointer)

    memory._set_allocator_settings(f"expandable_segments:{name == 'pytorch-expandable'}")
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    try:
        assert_equal(name, 0, malloc, free, torch.cuda.memory_reserved)
    finally:
        torch.cuda.empty_cache()
        memory._set_allocator_settings("expandable_segments:False")


def test_rmm() -> None:
    rmm = pytest.importorskip("rmm", reason="RMM is not installed")
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=0)
    assert_equal("rmm", 0, pool.allocate, pool.deallocate, pool.pool_size)
