"""The report of a pool, and what an error says when upstream has no memory."""

from __future__ import annotations

import gc
import traceback
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan import CupyPool, NumpyPool
from stowplan.allocator._core import Replay
from stowplan.allocator.counter_definitions import REASONS

from ..running import run

IMPOSSIBLE = 1 << 46
"""Bytes that no machine has, and that no address space limit has to forbid."""


def work(first: int = 5000) -> None:
    a = np.ones(first)
    b = a * 2
    del a
    c = b + 1
    del b
    c.sum()


def replaying() -> NumpyPool:
    """A pool that is entered, with a plan for `work`."""
    pool = NumpyPool(warmup=0)
    with pool:
        run(pool, 4, work, "train")
    assert pool.stats.replayed > 0
    return pool


def told(error: BaseException) -> str:
    """What a user sees of an error."""
    return "".join(traceback.format_exception(error))


# ------------------------------------------------------------------------------------------------------------- report


def test_the_report_as_a_dict() -> None:
    pool = replaying()
    kept = []
    with pool, pool.step("train"):
        kept.append(np.ones(5000))
        data = pool.report(as_dict=True)
    plan = pool.plan()
    step = {"number": 5, "running": True, "key": "train", "requests": 1, "planned_requests": 3}
    assert data["step"] == step
    assert data["live_bytes"] == 40_000
    assert data["planned_bytes"] == data["arena_bytes"] == plan.arena_bytes
    assert data["lower_bound"] == plan.placement.lower_bound
    assert data["fragmentation"] == data["arena_bytes"] / data["lower_bound"] - 1
    assert data["reasons"]["no_plan"]["requests"] == pool.stats.reasons["no_plan"]
    (block,) = data["largest"]
    where = {"stream": 0, "age": 0, "request": 0, "lane": 0, "place": "planned", "due": 2, "wrapped": False}
    assert block == {"size": 40_000, **where}
    assert [entry["key"] for entry in data["plans"]] == ["train"]
    assert data["failure"] is None


def test_the_report_as_text() -> None:
    pool = replaying()
    with pool:
        outside = np.ones(3000)
        with pool.step("train"):
            inside = np.ones(5000)
            text = pool.report()
        after = pool.report()
    assert "in step 5 (key 'train'); plans: 1" in text
    assert REASONS["no_plan"].action in text
    assert "40,000  planned, request 0 of this step, due at request 2" in text
    assert "24,000  upstream, born outside of the steps" in text
    assert "40,000  late, request 0, 1 step ago" in after
    del inside, outside
    assert "no live blocks" in pool.report()


@given(st.lists(st.integers(1, 1000), max_size=40), st.data())
def test_the_largest_blocks_are_the_largest(sizes: list[int], data: st.DataObject) -> None:
    core = Replay()
    live: list[int] = []
    for address, size in enumerate(sizes, 1):
        block = core.request(size)[1]
        core.adopt(block, address * 1000)
        if data.draw(st.booleans()):
            core.release(block)
        else:
            live.append(size)
    assert [block["size"] for block in core.situation()["largest"]] == sorted(live, reverse=True)[:10]


# ------------------------------------------------------------------------------------------------------------ failure


def test_numpy_s_error_carries_the_diagnosis() -> None:
    def step() -> None:
        with pool, pool.step("train"):
            a = np.ones(5000)
            b = np.ones(5000)
            np.empty((len(a) + len(b)) * IMPOSSIBLE // 10_000, np.uint8)

    pool = replaying()
    with pytest.raises(MemoryError) as caught:
        step()
    assert type(caught.value).__module__.startswith("numpy.")
    text = told(caught.value)
    assert "Unable to allocate 64.0 TiB" in text
    assert f"upstream has no memory for {IMPOSSIBLE:,} bytes: request 2 of step 5 (key 'train')" in text
    assert "next: this request alone exceeds" in text
    assert pool.report(as_dict=True)["failure"] in text


def test_what_failed_outside_of_a_step_is_neither_live_nor_a_peak() -> None:
    pool = replaying()
    before = pool.stats
    with pytest.raises(MemoryError) as caught, pool:
        np.empty(IMPOSSIBLE, np.uint8)
    assert "outside of all steps, before step 5\n" in told(caught.value)
    assert replace(pool.stats, reasons=before.reasons, upstream=before.upstream) == before


def test_a_failure_that_was_dealt_with_is_in_no_other_error() -> None:
    pool = replaying()
    with pool:
        with pool.step("train"), pytest.raises(MemoryError):
            np.empty(IMPOSSIBLE, np.uint8)
        with pytest.raises(MemoryError) as later, pool.step("evaluate"):
            raise MemoryError("of a list")
    assert "stowplan" not in str(later.value)
    # Not under the key of another step.
    assert "request 0 of step 5\n" in str(pool.report(as_dict=True)["failure"])


# --------------------------------------------------------------------------------------------------------------- CuPy


def test_cupy_s_error_carries_the_diagnosis() -> None:
    from .cupy_host import HostUpstream, cupy

    def step() -> None:
        with pool.step("train"):
            a = cupy.empty(3000, cupy.uint8)
            cupy.empty(a.size * (1 << 21) // 3000, cupy.uint8)

    upstream = HostUpstream(fails=lambda number, size: size > 1 << 20)
    pool = CupyPool(upstream, warmup=0, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 4, lambda: cupy.empty(3000, cupy.uint8), "train")
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as caught:
            step()
    text = str(caught.value)
    assert text.startswith("Out of memory allocating 2,097,152 bytes")  # CuPy's own
    assert "upstream has no memory for 2,097,152 bytes: request 1 of step 5 (key 'train')" in text
    assert "3,000  planned, request 0 of this step, due at request 1" in text
    assert text.count("next: this request alone exceeds") == 1
    assert pool.report(as_dict=True)["failure"] in text


@pytest.mark.parametrize(
    ("steps", "before", "within", "action"),
    [
        (0, 0, 15_000, "there is no plan yet"),
        (4, 15_000, 0, "made before this step and is not planned"),
        (4, 0, 15_000, "a smaller batch"),
    ],
)
def test_the_next_action(steps: int, before: int, within: int, action: str) -> None:
    from .cupy_host import HostUpstream, cupy

    def ask() -> None:
        with pool.step():
            kept.append(cupy.empty(within, cupy.uint8))
            cupy.empty(8000, cupy.uint8)

    upstream = HostUpstream(fails=lambda number, size: upstream.live_bytes + size > 20_000)
    pool = CupyPool(upstream, warmup=0, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, steps, lambda: cupy.empty(3000, cupy.uint8))
        kept = [cupy.empty(before, cupy.uint8)]
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match=f"next: .*{action}"):
            ask()


def test_other_errors_of_upstream_s_are_left_alone() -> None:
    from .cupy_host import cupy

    def upstream(size: int) -> Any:
        raise LookupError("the user's")

    pool = CupyPool(upstream, device=0)
    with cupy.cuda.using_allocator(pool.malloc), pytest.raises(LookupError) as caught:
        cupy.empty(3000, cupy.uint8)
    assert caught.value.args == ("the user's",)


def test_a_pool_is_gone_when_it_is_dropped() -> None:
    """Its diagnosis does not keep it in a cycle: arenas go back at once."""
    from .cupy_host import HostUpstream

    gc.collect()
    gc.disable()
    try:
        pool = CupyPool(HostUpstream(), device=0)
        core = weakref.ref(pool._lanes())
        del pool
        assert core() is None
    finally:
        gc.enable()
