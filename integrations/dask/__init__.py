"""A plugin for Dask's workers: every task of every worker thread through a pool, a step a kind of task.

::

    client.register_plugin(PoolPlugin(limit="4 GiB"))

    worker process     pool, in the place of NumPy's default handler
      thread 1           task "sum-aggregate" ──> with pool.step("sum-aggregate (4 arrays, 8388608 bytes)")
      thread 2           task "rechunk-merge" ──> with pool.step(...)
      event loop         arrays received from other workers: upstream, which keeps what is freed for the next ones

What a task returns is kept by the worker for other tasks: it counts as escaped, has no place in a plan, and is in no
plan's way (`Pool.step`, ``keeps_results``). What it makes on the way comes from the plan. The kind of a task is its
prefix, as on Dask's dashboard, with the number and the bytes of the arrays that it is given.

Dask spills, and pauses a worker, by the memory that its process has resident. What the pool keeps for later requests
would count, and stay for ever while no task runs: so it is freed before Dask sees a number that it would act on.

Dask offers no hook around a task in its thread. So `distributed.worker._run_task`, which is private, is replaced by one
that gives it the task in a step. Where it is not there, or takes something else, there is a warning, and the workers go
on without a pool. Nor has it a hook around that number, which a worker's `monitor.get_process_memory` returns. Tested
with Dask 2026.8.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingDependencyError, PoolError

try:
    import distributed.worker
    from dask import config
    from dask.utils import key_split
    from distributed import Worker, WorkerPlugin
except ImportError as error:
    raise MissingDependencyError(f"stowplan.dask: {error}; expected: pip install 'stowplan[dask]'") from error

from ..allocator.options import limit_bytes
from ..executors import kind, task_pool
from ..host_memory import host_memory
from ..prediction.dask_resources import RESOURCE, MemoryPlugin, needs, worker_memory
from ..units import parse_share

if TYPE_CHECKING:
    from ..allocator import NumpyPool
    from ..allocator.stats import Stats

__all__ = ["RESOURCE", "MemoryPlugin", "PoolPlugin", "needs", "stats", "why_unknown"]

logger = logging.getLogger(__name__)

TAKES = ("task", "data", "execution_state", "key")
"""What Dask's function that runs a task must take first."""

METRICS: dict[str, Callable[[Stats], int]] = {
    "stowplan requests": lambda stats: stats.requests,
    "stowplan replayed": lambda stats: stats.replayed,
    "stowplan results": lambda stats: stats.reasons.get("escaped", 0),
    "stowplan reserved bytes": lambda stats: stats.reserved_bytes,
    "stowplan plans": lambda stats: stats.plans,
}
"""Columns of the dashboard's page "Workers": those that tell whether the pool is of use."""

TERMINATE = "distributed.worker.memory.terminate"
"""Dask's setting: the share of its memory limit at which a worker is ended."""

LOG_SECONDS = 10.0
"""Between two lines of a log."""


class PoolPlugin(WorkerPlugin):  # type: ignore[misc]  # Dask's is untyped here
    """Serve the arrays of Dask's tasks from plans.

    Parameters
    ----------
    limit
        The most memory that the arrays of a worker process may take, arenas included: bytes, text such as ``"4 GiB"``,
        or of the worker's memory limit ``"80%"``, or a fraction above 0 and up to 1 (as a float). A task that requests
        more gets a MemoryError that tells what fills the memory. None: no limit but the system's.
    log_directory
        A directory for a file of each worker, ``stowplan-NAME.jsonl``: its counts as a line of JSON, at the beginning,
        every ten seconds, and at the end. None: no files.

    Raises
    ------
    PoolError
        ``limit`` is none of these.

    Warns
    -----
    RuntimeWarning
        This Dask runs tasks in a way that is not known: they will run without a pool.

    Notes
    -----
    Several workers in one process share a pool, which the first one's options make.
    """

    name = "stowplan"

    def __init__(
        self, limit: int | float | str | None = None, log_directory: str | os.PathLike[str] | None = None
    ) -> None:
        if isinstance(limit, (int, str)):
            in_bytes = limit_bytes(limit, host_memory)
            limit = parse_share(limit) or in_bytes
        elif limit is not None and not 0 < limit <= 1:
            raise PoolError(f"limit is {limit!r}; as a float it is a fraction, above 0 and up to 1")
        self.limit = limit
        self.log_directory = None if log_directory is None else os.fspath(log_directory)
        self._log: Path | None = None
        self._logged = 0.0
        unknown = why_unknown()
        if unknown is not None:
            warnings.warn(unknown, RuntimeWarning, stacklevel=2)

    def setup(self, worker: Worker) -> None:
        """Serve a worker's process; called by Dask."""
        why = why_unknown() or _process.join(worker, self._bytes(worker))
        if why is not None:
            logger.warning(why)
            return
        for name in METRICS:
            worker.metrics[name] = functools.partial(self._metric, name)
        worker.monitor.get_process_memory = functools.partial(
            _resident, worker, worker.monitor.get_process_memory
        )
        if self.log_directory is not None:
            file = re.sub(r"[^\w.-]+", "_", f"stowplan-{worker.name}.jsonl")
            self._log = Path(self.log_directory, file)
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._write_log()

    def teardown(self, worker: Worker) -> None:
        """Leave a worker's process to NumPy's default handler again; called by Dask."""
        if not _process.serves(worker):
            return
        for name in METRICS:
            worker.metrics.pop(name, None)
        del worker.monitor.get_process_memory  # the class's serves again
        if self._log is not None:
            self._write_log()
        _process.leave(worker)

    def _bytes(self, worker: Worker) -> int | None:
        if not isinstance(self.limit, float):
            return self.limit
        return max(int(self.limit * worker_memory(worker)), 1)

    def _metric(self, name: str, worker: Worker) -> int:
        """Return one column; Dask requests them with every heartbeat."""
        if self._log is not None and time.monotonic() > self._logged + LOG_SECONDS:
            self._write_log()
        return METRICS[name](_process.stats())

    def _write_log(self) -> None:
        assert self._log is not None
        self._logged = time.monotonic()
        line = {"time": time.time(), "pid": os.getpid()} | asdict(_process.stats())
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def stats() -> Stats:
    """Return the counts of this worker's pool: ``client.run(stowplan.dask.stats)``.

    Raises
    ------
    PoolError
        No pool serves this process.
    """
    return _process.stats()


def why_unknown() -> str | None:
    """Tell why tasks cannot be served with this Dask; None if they can."""
    run_task = getattr(distributed.worker, "_run_task", None)
    found = () if run_task is None else tuple(inspect.signature(run_task).parameters)
    if found[: len(TAKES)] == TAKES:
        return None
    takes = f"takes {', '.join(found)}" if found else "is not there"
    return (
        f"stowplan does not know how Dask {distributed.__version__} runs tasks, so they run without a pool: "
        f"distributed.worker._run_task {takes}; expected one that takes {', '.join(TAKES)}"
    )


class _Process:
    """What serves the workers of this process."""

    def __init__(self) -> None:
        self._workers: set[str] = set()
        self._pool: NumpyPool | None = None
        self._run_task: Any = None  # Dask's

    def serves(self, worker: Worker) -> bool:
        return worker.id in self._workers

    def join(self, worker: Worker, limit: int | None) -> str | None:
        """Serve a worker, or tell why not."""
        if not self._workers:
            pool = task_pool(limit)
            try:
                pool.install()
            except PoolError as error:
                return f"stowplan serves no tasks of {worker.name}: {error}"
            self._pool = pool
            self._run_task = distributed.worker._run_task
            distributed.worker._run_task = _in_steps(self._run_task, pool)
        self._workers.add(worker.id)
        return None

    def leave(self, worker: Worker) -> None:
        """Serve it no longer. Arrays that the pool has handed out stay its own; so may tasks that run still."""
        self._workers.discard(worker.id)
        if self._workers or self._pool is None:
            return
        distributed.worker._run_task = self._run_task
        self._pool.uninstall()
        self._pool = None

    def trim(self) -> None:
        if self._pool is not None:
            self._pool.trim()

    def stats(self) -> Stats:
        if self._pool is None:
            raise PoolError(
                "no pool serves this worker; expected client.register_plugin(stowplan.dask.PoolPlugin())"
            )
        return self._pool.stats


_process = _Process()


def _resident(worker: Worker, measure: Callable[[], int]) -> int:
    """Return the bytes that a worker's process has resident. If Dask would act on them, the pool is trimmed first."""
    manager = worker.memory_manager
    shares = (manager.memory_spill_fraction, manager.memory_pause_fraction, config.get(TERMINATE))
    if measure() > min(filter(None, shares), default=1.0) * (manager.memory_limit or sys.maxsize):
        _process.trim()
    return measure()


def _in_steps(run_task: Callable[..., Any], pool: NumpyPool) -> Callable[..., Any]:
    """Return Dask's function that runs a task, with the task in a step of the pool."""

    @functools.wraps(run_task)
    def run(task: Any, data: dict[Any, Any], execution_state: Any, key: Any, *others: Any) -> Any:
        def step(data: dict[Any, Any]) -> Any:
            function = getattr(getattr(task, "func", None), "__name__", "")
            with pool.step(kind(f"{key_split(key)} {function}", data.values()), keeps_results=True):
                return task(data)

        return run_task(step, data, execution_state, key, *others)

    return run
