"""The plugin for Dask's workers, on real clusters: workers in processes and in this one."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
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
    return np.random.default_rng(seed).random(3000)


def smooth(image: np.ndarray) -> np.ndarray:
    wide = np.concatenate([image[-1:], image, image[:1]])
    return (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4


def fail(image: np.ndarray) -> None:
    raise ValueError(str(len(smooth(image))))


def rest(seconds: float) -> None:
    np.ones(3000)
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


def wait(dask_worker: Any) -> None:
    stowplan.dask._process.pool.wait(SECONDS)


def until(true: Callable[[], Any]) -> None:
    limit = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_intermediates_come_from_plans_and_results_escape(processes: Client, tmp_path: Path) -> None:
    processes.register_plugin(PoolPlugin(log_directory=tmp_path / "logs"))
    for _ in range(6):
        check(round_of(processes))
        processes.run(wait)
    before = counts(processes)
    check(round_of(processes))
    after = counts(processes)
    escaped = after.reasons["escaped"] - before.reasons["escaped"]
    others = sum(after.reasons.get(name, 0) - before.reasons.get(name, 0) for name in ("outside", "thread"))
    replayed = after.replayed - before.replayed
    assert escaped >= 50  # of 60 tasks
    assert replayed >= 0.9 * (after.requests - before.requests - escaped - others)
    assert after.guests == 0
    processes.run(wait)

    # a restart: the process is another one
    processes.restart(timeout=SECONDS)
    for _ in range(6):
        check(round_of(processes))
        processes.run(wait)
    again = counts(processes)
    assert again.replayed > 0
    assert again.plans > 0

    def shown() -> dict[str, int]:
        (worker,) = processes.scheduler_info()["workers"].values()
        return {name: worker["metrics"].get(name, 0) for name in stowplan.dask.METRICS}

    until(lambda: shown()["stowplan replayed"] == again.replayed)
    assert set(map(type, shown().values())) == {int}

    processes.unregister_worker_plugin("stowplan")
    check(round_of(processes))
    (log,) = (tmp_path / "logs").iterdir()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "pid", "replayed", "reasons"} <= set(lines[0])
    assert len({line["pid"] for line in lines}) == 2
    assert lines[-1]["replayed"] == again.replayed
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
    for _ in range(5):
        check(round_of(processes))
        processes.run(wait)
    before = counts(processes).replayed
    check(round_of(processes))
    assert counts(processes).replayed > before
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
        for _ in range(6):  # from the heap, then from an arena
            assert client.submit(large, pure=False).result(timeout=SECONDS) == 450 << 17
            client.run(wait)
        assert counts(client).replayed > 0


async def doze(image: np.ndarray) -> np.ndarray:
    return smooth(image)


def in_a_process(image: np.ndarray) -> tuple[int, bool, np.ndarray]:
    return os.getppid(), stowplan.dask._process.pool is not None, smooth(image)


def test_tasks_that_no_thread_runs(threads: Client) -> None:
    """A coroutine is Dask's own; an executor of processes is sent the task itself, without the pool."""
    threads.register_plugin(PoolPlugin())
    assert (threads.submit(doze, image(1), pure=False).result(timeout=SECONDS) == smooth(image(1))).all()
    (worker,) = threads.cluster.workers.values()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        worker.executors["processes"] = processes
        with dask.annotate(executor="processes"):
            elsewhere = threads.submit(in_a_process, image(1), pure=False)
        parent, served, result = elsewhere.result(timeout=SECONDS)
    assert (parent, served) == (os.getpid(), False)
    assert (result == smooth(image(1))).all()
    assert counts(threads).steps == 0


def test_a_task_that_waits_when_the_pool_leaves_runs_without_it(processes: Client) -> None:
    processes.register_plugin(PoolPlugin())
    running = processes.map(rest, [0.5] * 2, pure=False)
    until(lambda: len(processes.processing()) and any(processes.processing().values()))
    after = processes.map(smooth, [image(seed) for seed in range(20)], pure=False)
    processes.unregister_worker_plugin("stowplan")
    found = processes.gather(after)
    processes.gather(running)
    assert all((one == smooth(image(seed))).all() for seed, one in enumerate(found))


def test_workers_of_one_process_share_a_pool_and_leave_it() -> None:
    with cluster(processes=False, n_workers=2, threads_per_worker=1) as client:
        client.register_plugin(PoolPlugin())
        check(round_of(client))
        found = client.run(stowplan.dask.stats)
        assert len(found) == 2
        assert len({stats.steps for stats in found.values()}) == 1
        assert next(iter(found.values())).steps >= 60
    with pytest.raises(PoolError):
        stowplan.dask.stats()


def test_a_dask_that_is_not_known(threads: Client, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(distributed.WorkerPlugin, "transition")
        with pytest.warns(RuntimeWarning, match=r"does not know how Dask .* runs tasks.*: expected"):
            plugin = PoolPlugin()
        threads.register_plugin(plugin)
        check(round_of(threads))
    assert "does not know how Dask" in caplog.text
    assert stowplan.dask.why_unknown() is None


def test_a_process_that_a_pool_serves_already(threads: Client, caplog: Any) -> None:
    pool = NumpyPool()
    pool.install()
    try:
        threads.register_plugin(PoolPlugin())
        check(round_of(threads))
    finally:
        pool.uninstall()
    assert "another pool serves already" in caplog.text


def test_a_limit_is_bytes_or_text_or_a_fraction(threads: Client) -> None:
    for limit, expected in (
        (2**20, 2**20),
        ("5GB", 5 * 10**9),
        ("4 GiB", 4 << 30),
        ("25%", 0.25),
        (None, None),
    ):
        assert PoolPlugin(limit).limit == expected
    for wrong in (0.0, 1.5, 0, "all", "0%", True):
        with pytest.raises(PoolError, match="limit is"):
            PoolPlugin(wrong)
    (worker,) = threads.cluster.workers.values()
    total = worker.memory_manager.memory_limit
    assert PoolPlugin(0.25)._bytes(worker) == int(total * 0.25)
