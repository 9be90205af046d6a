"""Predicted peaks as Dask's resources: large tasks do not meet on a worker."""

from __future__ import annotations

import math
import os
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="no Dask; expected: pip install 'stowplan[dask]'")

from distributed import Client, LocalCluster

import stowplan
from stowplan.dask import RESOURCE, MemoryPlugin, needs

patient = partial(stowplan.predict, learning_seconds=math.inf)
"""Other tests may have the processor."""
pytestmark = [pytest.mark.usefixtures("modest"), pytest.mark.filterwarnings("ignore:a task's peak")]

running, most = 0, 0
lock = threading.Lock()
met = threading.Barrier(1)
PATIENCE = 600.0  # seconds before a test gives up


def doubled(x: Any) -> Any:
    return x * 2 + 1


def counted(x: Any) -> int:
    """Wait for as many as may run at once, and return how many did, at most."""
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    met.wait(PATIENCE)
    time.sleep(0.05)  # one more that ran would be seen
    with lock:
        running -= 1
    return most


def at_once(client: Client, resources: dict[str, Any], expected: int) -> int:
    global most, met
    most, met = 0, threading.Barrier(expected)
    tasks = [client.submit(counted, n, pure=False, **resources) for n in range(6)]
    return max(client.gather(tasks))


def test_tasks_that_do_not_fit_together_do_not_meet() -> None:
    prediction = patient(doubled, np.ones(100))
    with (
        LocalCluster(
            1, threads_per_worker=3, processes=False, memory_limit="2 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(MemoryPlugin(0.5))
        (worker,) = client.scheduler_info()["workers"].values()
        assert worker["resources"] == {RESOURCE: 2**30}
        large = needs(prediction, x=50_000_000)
        assert large["resources"][RESOURCE] == pytest.approx(16 * 50_000_000, abs=64)
        assert at_once(client, large, 1) == 1
        assert at_once(client, needs(prediction, x=25_000_000), 2) == 2
        assert at_once(client, {}, 3) == 3


def test_tasks_run_on_a_worker_that_was_restarted() -> None:
    with LocalCluster(1, memory_limit="2 GiB", dashboard_address=":0") as cluster, Client(cluster) as client:
        client.register_plugin(MemoryPlugin(0.5))
        client.run(os._exit, 1, on_error="ignore")
        task = client.submit(abs, -1, resources={RESOURCE: 2**30})
        assert task.result(timeout=PATIENCE) == 1


def test_what_no_worker_has_is_refused() -> None:
    prediction = patient(doubled, np.ones(100))
    with pytest.raises(MemoryError, match=r"a task needs 14.9 GiB, and a worker has 4 GiB; .*doubled"):
        needs(prediction, "4 GiB", x=10**9)


def test_what_cannot_be_told_is_said() -> None:
    prediction = patient(lambda x: x[x > 0], np.linspace(-1, 1, 100))
    with pytest.warns(RuntimeWarning, match="cannot tell"):
        found = needs(prediction, x=10**6)
    assert found["resources"][RESOURCE] >= 8 * 10**6
