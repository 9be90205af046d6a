"""Pools behind C functions: places in which they serve one after another, what they leave, and steps of all threads."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from stowplan import PoolError
from stowplan.allocator._core import NativePlace

from ..properties.native_backend import PlacePool
from ..running import in_threads
from ..updates import update
from .c_functions import CFunctions

PLACE = NativePlace()
LARGE = 1 << 20


def place_pool(place: NativePlace = PLACE, **options: Any) -> PlacePool:
    """Return a pool for whoever calls the functions of a place."""
    return PlacePool(place, **{"small": 1000, "scope": "process", **options})


@pytest.fixture
def libc() -> CFunctions:
    """What PLACE serves, whoever is in it."""
    return CFunctions(PLACE.functions)


@pytest.fixture
def pool() -> Iterator[PlacePool]:
    pool = place_pool()
    with pool:
        yield pool


def test_a_scope_is_the_process_s_or_the_threads() -> None:
    with pytest.raises(PoolError, match="scope is 'stream'; expected 'process' or 'thread'"):
        place_pool(scope="stream")


def test_a_place_that_cannot_be_taken_stays_free() -> None:
    def refuse(functions: int) -> None:
        assert functions == place.functions
        if refuses:
            raise PoolError("another library is there")

    refuses, place = True, NativePlace(take=refuse)
    pool = place_pool(place)
    with pytest.raises(PoolError, match="another library"):
        pool.install()
    refuses = False
    with pool:
        pass


def test_requests_of_all_threads_are_one_step_s(pool: PlacePool, libc: CFunctions) -> None:
    for _ in range(6):
        with pool.step():
            for turn in (0, 1, 0, 1):
                in_threads(lambda: ask(libc, 5000)) if turn else ask(libc, 9000)
        pool.wait()
    assert pool.stats.replayed == 4 * 4
    assert "thread" not in pool.stats.reasons


def test_steps_of_all_threads_are_told_by_whichever_updates(libc: CFunctions) -> None:
    update()  # it is imported
    with place_pool(auto_step=True) as pool:
        for number in range(30):
            live = [libc.malloc(size) for size in (LARGE, 2 * LARGE, 5000)]
            in_threads(lambda: ask(libc, 7000))
            for block in live:
                libc.free(block)
            in_threads(update) if number % 2 else update()
            pool.wait()
        assert (pool.stats.steps, pool.stats.replayed) == (29, 4 * 26)


def ask(functions: CFunctions, size: int) -> None:
    block = functions.malloc(size)
    ctypes.memset(block, 1, size)
    functions.free(block)
