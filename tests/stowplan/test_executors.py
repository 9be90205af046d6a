"""Served functions in the real executors: threads, processes of each kind, pools of processes, joblib, asyncio."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from stowplan import executors, served
from stowplan.allocator.stats import Stats
from stowplan.errors import PoolError

from ..running import in_threads

OFTEN = 8
"""Steps until something is replayed, and more: a plan is made in the second, in the background."""
IMAGES = [np.random.default_rng(seed).random(2000 + 500 * (seed % 2)) for seed in range(24)]


def smooth(image: np.ndarray) -> np.ndarray:
    """A result, and intermediates."""
    wide = np.concatenate([image[-1:], image, image[:1]])
    return (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4


@served
def decorated(image: np.ndarray) -> np.ndarray:
    return smooth(image)


def counts(image: np.ndarray) -> tuple[int, Stats, np.ndarray]:
    """What the function's own process has counted after a call."""
    result = served(smooth)(image)
    served(smooth).pool.wait()
    return os.getpid(), served(smooth).pool.stats, result


def expect(results: Any) -> None:
    results = list(results)
    assert len(results) == len(IMAGES)
    for image, result in zip(IMAGES, results, strict=True):
        assert (result == smooth(image)).all()


def expect_counts(found: list[tuple[int, Stats, np.ndarray]]) -> None:
    """Results are right, and each process but this one that has run often has replayed what it planned."""
    expect(result for _, _, result in found)
    last = {pid: stats for pid, stats, _ in found}
    assert os.getpid() not in last
    often = [stats for stats in last.values() if stats.steps >= OFTEN]
    assert often
    for stats in often:
        assert stats.plans >= 1
        assert stats.replayed > 0
        assert stats.guests == 0


def test_threads() -> None:
    function = served(smooth, limit="64 MiB")  # a pool of its own
    with ThreadPoolExecutor(2) as executor:
        for _ in range(8):
            expect(executor.map(function, IMAGES))
            function.pool.wait()
        before = function.pool.stats
        expect(executor.map(function, IMAGES))
        after = function.pool.stats
    asked = after.requests - before.requests
    escaped = after.reasons["escaped"] - before.reasons["escaped"]
    assert escaped == len(IMAGES)
    assert (after.replayed - before.replayed) / (asked - escaped) > 0.9


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes(method: str) -> None:
    context = multiprocessing.get_context(method)
    executor: Executor = ProcessPoolExecutor(1, mp_context=context)
    with executor:
        expect_counts(list(executor.map(counts, IMAGES)))
        expect(executor.map(served(smooth), IMAGES))
        expect(executor.map(decorated, IMAGES))


def test_a_pool_of_processes() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        expect(pool.map(served(smooth), IMAGES, chunksize=4))
        expect(pool.imap(decorated, IMAGES))
        expect_counts(pool.map(counts, IMAGES))


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib(backend: str) -> None:
    joblib = pytest.importorskip("joblib", reason="no joblib; expected: pip install joblib")
    with joblib.parallel_config(backend=backend, n_jobs=2):
        expect(joblib.Parallel()(joblib.delayed(served(smooth))(image) for image in IMAGES))
        expect(joblib.Parallel()(joblib.delayed(served(lambda x: smooth(x)))(image) for image in IMAGES))
        if backend == "loky":
            expect_counts(joblib.Parallel()(joblib.delayed(counts)(image) for image in IMAGES))
    if backend == "loky":
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)


def test_to_thread() -> None:
    async def gather() -> list[np.ndarray]:
        return await asyncio.gather(*(asyncio.to_thread(served(smooth), image) for image in IMAGES))

    before = served(smooth).pool.stats.steps
    expect(asyncio.run(gather()))
    assert served(smooth).pool.stats.steps == before + len(IMAGES)


def test_a_call_within_a_call_belongs_to_it() -> None:
    before = served(smooth).pool.stats.steps
    assert (served(lambda image: decorated(image) + 1)(IMAGES[0]) == smooth(IMAGES[0]) + 1).all()
    assert served(smooth).pool.stats.steps == before + 1


def test_an_error_passes_on_and_the_next_call_is_served() -> None:
    def fail(image: np.ndarray) -> None:
        raise ValueError(str(len(image)))

    function = served(fail)
    for image in IMAGES[:3]:
        with pytest.raises(ValueError, match=str(len(image))):
            function(image)
    assert (served(smooth)(IMAGES[0]) == smooth(IMAGES[0])).all()


def test_it_is_the_function_to_look_at() -> None:
    assert (decorated.__name__, served(smooth).__doc__) == ("decorated", smooth.__doc__)  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(served(smooth, limit=10**9)))
    assert again.pool is served(smooth, limit="1GB").pool


class Filter:
    def __init__(self, times: int) -> None:
        self.times = times

    @served
    def apply(self, image: np.ndarray) -> np.ndarray:
        for _ in range(self.times):
            image = smooth(image)
        return image


def test_methods() -> None:
    assert (Filter(2).apply(IMAGES[0]) == smooth(smooth(IMAGES[0]))).all()
    assert (served(Filter(1).apply)(IMAGES[0]) == smooth(IMAGES[0])).all()


def test_calls_of_one_kind() -> None:
    wide = np.ones((10, 20)).T
    assert executors.kind("f", (IMAGES[0], 3, IMAGES[1])) == "f (2 arrays, 36000 bytes, 0 not in C order)"
    assert executors.kind("f", (wide, wide[:0])) == "f (2 arrays, 1600 bytes, 1 not in C order)"
    assert executors.kind("f", ()) == "f (0 arrays, 0 bytes, 0 not in C order)"


async def coroutine() -> None: ...


def generator() -> Any:
    yield


@pytest.mark.parametrize(
    ("function", "what"),
    [(coroutine, "coroutine"), (generator, "generator"), (3, "expected a function")],
)
def test_what_cannot_be_served(function: Any, what: str) -> None:
    with pytest.raises(PoolError, match=what):
        served(function)


@pytest.mark.parametrize("limit", ["much", 0, -1, "0"])
def test_a_limit_is_a_number_of_bytes(limit: Any) -> None:
    with pytest.raises(PoolError, match=r"limit is .*; expected bytes"):
        served(smooth, limit=limit)


def test_threads_make_one_pool() -> None:
    function = served(smooth, limit=12345678)
    found = []
    in_threads(*[lambda: found.append(function.pool)] * 4)
    assert len(set(map(id, found))) == 1
