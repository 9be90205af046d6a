"""Large tasks on a Dask worker, with their predicted peaks as resources and without: a worker of two threads.

``python -m experiments.predict.dask_tasks``. Its memory limit is 1.1 times what the largest task and the idle worker
take; it is paused at 95 % of it, and ended by Dask's nanny at 98 %. The files are ``predict_dask.csv`` and ``.md``.
"""

from __future__ import annotations

import logging
import time
import warnings
from pathlib import Path
from typing import Any

import click
import dask
import numpy as np
from distributed import Client, LocalCluster, SchedulerPlugin, get_worker

import stowplan
from stowplan.dask import MemoryPlugin, needs

from ..measures import output
from ..measures.kept import Row

SIZES = (30_000_000, 20_000_000, 30_000_000, 25_000_000) * 3
"""Numbers of each task: 16 bytes each at the peak."""
SECONDS = 120


def spread(x: Any) -> float:
    """Return the sum of squares of the distances from the mean; holds its peak for a while."""
    away = x - x.mean()
    time.sleep(0.4)
    away *= away
    return float(away.sum())


def task(n: int) -> float:
    """Make an array in the worker, as a task that reads a file would."""
    return spread(np.ones(n))


class Deaths(SchedulerPlugin):  # type: ignore[misc]  # Dask's is untyped here
    """Count workers that went away."""

    count = 0

    def remove_worker(self, *args: Any, **options: Any) -> None:
        """Count one; called by Dask."""
        self.count += 1


def measure(contestant: str, limit: int) -> Row:
    """Run all tasks on a cluster."""
    prediction = stowplan.predict(spread, np.ones(1000), learning_seconds=30)  # it sleeps
    began, paused, deaths, predicted = time.perf_counter(), 0, Deaths(), contestant != "Dask"
    options = {"memory_limit": limit, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(1, threads_per_worker=2, **options) as cluster, Client(cluster) as client:
        cluster.scheduler.add_plugin(deaths)
        if predicted:
            client.register_plugin(MemoryPlugin(0.95))
        tasks = [
            client.submit(task, n, pure=False, **(needs(prediction, x=n) if predicted else {})) for n in SIZES
        ]
        while any(one.status == "pending" for one in tasks) and time.perf_counter() < began + SECONDS:
            workers = client.scheduler_info()["workers"].values()
            paused += any(worker["status"] == "paused" for worker in workers)
            time.sleep(0.1)
        return {
            "device": "cpu",
            "contestant": contestant,
            "limit": limit,
            "tasks": len(SIZES),
            "done": sum(one.status == "finished" for one in tasks),
            "lost": sum(one.status == "error" for one in tasks),
            "deaths": deaths.count,
            "paused": paused / 10,
            "seconds": time.perf_counter() - began,
        }


def idle_bytes() -> int:
    """Return what an idle worker with NumPy takes."""
    with LocalCluster(1, threads_per_worker=2, dashboard_address=":0") as cluster, Client(cluster) as client:
        return int(client.submit(lambda: task(10) + get_worker().monitor.get_process_memory()).result())


COLUMNS = (
    output.Column("", "contestant"),
    output.Column("limit (MiB)", "limit", output.mib),
    output.Column("tasks", "tasks"),
    output.Column("done", "done"),
    output.Column("lost", "lost"),
    output.Column("workers killed", "deaths"),
    output.Column("paused (s)", "paused"),
    output.Column("seconds", "seconds", output.seconds),
)


@click.command()
@output.out
def main(out: Path) -> None:
    """Run large tasks with predicted peaks, and without."""
    warnings.filterwarnings("error", "a task's peak")  # it cannot tell
    logging.disable(logging.CRITICAL)
    limit = int(1.1 * (16 * max(SIZES) + idle_bytes()))
    options = {"pause": 0.95, "terminate": 0.98, "target": False, "spill": False}
    with dask.config.set({f"distributed.worker.memory.{key}": value for key, value in options.items()}):
        rows = [measure(contestant, limit) for contestant in ("Dask", "Dask, peaks told")]
    title = "Large tasks on a Dask worker"
    output.write_table(rows, COLUMNS, out / "predict_dask", title, packages=("dask", "distributed"))
    for row in rows:
        click.echo(row)


if __name__ == "__main__":
    main()
