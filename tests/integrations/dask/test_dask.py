"""The plugin for Dask's workers, on real clusters: workers in processes and in this one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

dask = pytest.importorskip("dask", reason="no Dask; expected: pip install 'stowplan[dask]'")
distributed = pytest.importorskip("distributed", reason="no Dask; expected: pip install 'stowplan[dask]'")

from distributed import Client, LocalCluster

import stowplan.dask
from stowplan import NumpyPool
from stowplan.allocator.stats import Stats
from stowplan.dask import TERMINATE, PoolPlugin
from stowplan.errors import PoolError

SECONDS = 600  # before a test gives up


@contextmanager
def cluster(**options: Any) -> Iterator[Client]:
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0"} | options
    with LocalCluster(**options) as workers, Client(workers, timeout=SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
def processes() -> Iterator[Client]:
    with cluster() as client:
        yield client


@pytest.fixture
def threads() -> Iterator[Client]:
    with cluster(processes=False) as client:
        yield client


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(10_000)  # 80 kB: the heap has what is 32 KiB and more


def smooth(image: np.ndarray) -> np.ndarray:
    wide = np.concatenate([image[-1:], image, image[:1]])
    return (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4


def fail(image: np.ndarray) -> None:
    raise ValueError(str(len(smooth(image))))


def rest(seconds: float) -> None:
    np.ones(10_000)
    time.sleep(seconds)


def round_of(client: Client) -> list[np.ndarray]:
    """Images made, smoothed twice, and gathered, by tasks that keep their results alive for others."""
    made = client.map(image, range(20), pure=False)
    smoothed = client.map(smooth, client.map(smooth, made, pure=False), pure=False)
    return list(client.gather(smoothed))


EXPECTED = [smooth(smooth(image(seed))) for seed in range(20)]


def check(found: list[np.ndarray]) -> None:
    assert len(found) == len(EXPECTED)
    assert all((one == other).all() for one, other in zip(found, EXPECTED, strict=True))


def counts(client: Client) -> Stats:
    (found,) = client.run(stowplan.dask.stats).values()
    assert isinstance(found, Stats)
    return found


def until(true: Callable[[], Any]) -> None:
    limit = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_arrays_come_from_the_heap_and_the_figures_are_shown(processes: Client, tmp_path: Path) -> None:
    processes.register_plugin(PoolPlugin(log_directory=tmp_path / "logs"))
    check(round_of(processes))
    before = counts(processes)
    assert before.reasons["heap_only"] == before.requests >= 60 * 2

    # a restart: the process is another one
    processes.restart(timeout=SECONDS)
    check(round_of(processes))
    again = counts(processes)
    assert again.requests >= 60 * 2
    assert again.peak_reserved_bytes > 0
    assert (again.steps, again.plans) == (0, 0)

    def shown() -> dict[str, int]:
        (worker,) = processes.scheduler_info()["workers"].values()
        return {name: worker["metrics"].get(name, 0) for name in stowplan.dask.METRICS}

    until(lambda: shown()["stowplan requests"] >= again.requests)
    assert set(map(type, shown().values())) == {int}

    processes.unregister_worker_plugin("stowplan")
    check(round_of(processes))
    (log,) = (tmp_path / "logs").iterdir()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "pid", "reserved_bytes", "reasons"} <= set(lines[0])
    assert len({line["pid"] for line in lines}) == 2
    assert sum(lines[-1]["reasons"].values()) >= again.requests
    with pytest.raises(PoolError, match=r"expected client\.register_plugin"):
        counts(processes)


def test_tasks_that_fail_or_are_cancelled(processes: Client) -> None:
    processes.register_plugin(PoolPlugin())
    check(round_of(processes))
    failing = processes.map(fail, [image(seed) for seed in range(6)], pure=False)
    for future in failing:
        assert isinstance(future.exception(timeout=SECONDS), ValueError)
    running = processes.map(rest, [0.3] * 8, pure=False)
    until(lambda: any(future.status == "finished" for future in running))
    processes.cancel(running)
    before = counts(processes).requests
    check(round_of(processes))
    assert counts(processes).requests > before
    processes.unregister_worker_plugin("stowplan")


def test_tasks_beyond_the_limit_fail_and_say_what_fills_memory(processes: Client) -> None:
    processes.register_plugin(PoolPlugin(limit="1 MiB"))
    error = processes.submit(np.ones, 10**6, pure=False).exception(timeout=SECONDS)
    assert isinstance(error, MemoryError)
    reports = processes.run(lambda: stowplan.dask._process.pool.report())  # type: ignore[union-attr]
    assert all(
        "the limit of 1,048,576 bytes leaves no room for 8,000,000 bytes" in it for it in reports.values()
    )
    assert processes.submit(lambda: np.ones(1000).sum()).result(timeout=SECONDS) == 1000
    processes.unregister_worker_plugin("stowplan")


def large() -> float:
    return float(np.ones(450 << 17).sum())


def test_what_the_pool_keeps_does_not_pause_a_worker_for_ever() -> None:
    with dask.config.set({TERMINATE: False}), cluster(threads_per_worker=1, memory_limit="512 MiB") as client:
        client.register_plugin(PoolPlugin())
        for _ in range(6):
            assert client.submit(large, pure=False).result(timeout=SECONDS) == 450 << 17
        assert counts(client).requests > 0


def test_workers_of_one_process_share_a_pool_and_leave_it() -> None:
    with cluster(processes=False, n_workers=2, threads_per_worker=1) as client:
        client.register_plugin(PoolPlugin())
        check(round_of(client))
        found = client.run(stowplan.dask.stats)
        assert len(found) == 2
        assert all(stats.requests >= 60 * 2 for stats in found.values())
    with pytest.raises(PoolError):
        stowplan.dask.stats()


def test_a_process_that_a_pool_serves_already(threads: Client, caplog: Any) -> None:
    pool = NumpyPool()
    pool.install()
    try:
        threads.register_plugin(PoolPlugin())
        check(round_of(threads))
    finally:
        pool.uninstall()
    assert "another pool serves already" in caplog.text


def test_a_limit_may_be_a_fraction(threads: Client) -> None:
    for wrong in (0.0, 1.5, 0, "all", "0%", True):
        with pytest.raises(PoolError, match="limit is"):
            PoolPlugin(wrong)
    (worker,) = threads.cluster.workers.values()
    total = worker.memory_manager.memory_limit
    assert PoolPlugin(0.25)._bytes(worker) == int(total * 0.25)
