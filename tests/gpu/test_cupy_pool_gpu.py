"""CupyPool in device memory: streams, managed memory, limits, hooks, the recorder, the end of the interpreter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from stowplan import CupyPool

from ..children import end_quietly, printed
from ..running import run

pytestmark = pytest.mark.gpu

PAGE = 2 << 20
"""Bytes: the most that virtual memory is mapped in."""


def results(pool: CupyPool, steps: int, work: Callable[[], Any]) -> list[Any]:
    """Return what steps have computed."""
    found: list[Any] = []
    run(pool, steps, lambda: found.append(work()))
    return found


def chain(cupy: Any) -> float:
    a = cupy.arange(100_000, dtype=cupy.float64)
    b = a * 2 + 1
    c = cupy.concatenate([b, a])
    return float(c[::7].sum())


@pytest.mark.parametrize("trials", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_what_a_signal_s_handler_raises_reaches_the_program(trials: int) -> None:
    assert json.loads(printed("-m", "tests.signals", "cupy", trials, timeout=3600)) == []


@pytest.mark.parametrize("options", [{}, {"device": 0}, {"sample": "managed"}])
def test_steps_are_replayed_and_change_no_value(cupy: Any, options: dict[str, Any]) -> None:
    expected = chain(cupy)
    pool = CupyPool(**options)
    cupy.cuda.set_allocator(pool.malloc)
    assert results(pool, 8, lambda: chain(cupy)) == [expected] * 8
    stats = pool.stats
    assert stats.plans == 1
    assert set(stats.reasons) == {"no_plan"}
    assert stats.replayed == 5 * len(pool.profile())
    assert pool.plan().arena_bytes == stats.lower_bound
    assert 0 <= stats.arena_bytes - stats.lower_bound < PAGE
    assert pool.total_bytes() >= stats.arena_bytes


def test_interpreter_exit_with_live_arrays() -> None:
    end_quietly("""
import cupy
from stowplan import CupyPool
from tests.running import run
pool = CupyPool()
cupy.cuda.set_allocator(pool.malloc)
kept = []
run(pool, 8, lambda: kept.append(cupy.ones(5000) * 2))
""")
