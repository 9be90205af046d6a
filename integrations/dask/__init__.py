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

By public names of Dask: `WorkerPlugin.transition` is told when a task is about to run, and puts the worker's own
`TaskState.run_spec`, which is called with the task's data in its thread, into a step. The number above is what
`monitor.get_process_memory` of a worker returns. Tested with Dask 2026.8; 2024.12 has the same names.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import MissingDependencyError, PoolError

try:
    import distributed
    from dask import config
    from dask.utils import key_split
    from distributed import Worker, WorkerPlugin
    from distributed.worker_state_machine import TaskState
except ImportError as error:
    raise MissingDependencyError(f"stowplan.dask: {error}; expected: pip install 'stowplan[dask]'") from error

from ..allocator.options import limit_bytes
from ..host_memory import host_memory
from ..prediction.dask_resources import RESOURCE, MemoryPlugin, needs, worker_memory
from ..units import parse_share

if TYPE_CHECKING:
    from ..allocator import NumpyPool
    from ..allocator.stats import Stats

__all__ = ["RESOURCE", "MemoryPlugin", "PoolPlugin", "needs", "stats", "why_unknown"]

logger = logging.getLogger(__name__)

KINDS = 256
"""Plans to keep: computations have more kinds of tasks than loops have kinds of steps."""

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
        self._worker: Worker | None = None
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
        self._worker = worker
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

    def transition(self, key: Any, start: str, finish: str, **others: Any) -> None:
        """Put a task that is about to run into a step; called by Dask."""
        if finish != "executing" or self._worker is None:
            return
        task: Any = self._worker.state.tasks[key]
        # A coroutine runs on the event loop, where other code runs in its midst.
        if not (task.run_spec.is_coro or isinstance(task.run_spec, _InStep)):
            task.run_spec = _InStep(task.run_spec, key)

    def teardown(self, worker: Worker) -> None:
        """Leave a worker's process to NumPy's default handler again; called by Dask."""
        if not _process.serves(worker):
            return
        self._worker = None
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
    if "run_spec" in {field.name for field in fields(TaskState)} and hasattr(WorkerPlugin, "transition"):
        return None
    return (
        f"stowplan does not know how Dask {distributed.__version__} runs tasks, so they run without a pool: "
        "expected WorkerPlugin.transition, and distributed.worker_state_machine.TaskState.run_spec"
    )


class _Process:
    """What serves the workers of this process."""

    def __init__(self) -> None:
        self._workers: set[str] = set()
        self.pool: NumpyPool | None = None

    def serves(self, worker: Worker) -> bool:
        return worker.id in self._workers

    def join(self, worker: Worker, limit: int | None) -> str | None:
        """Serve a worker, or tell why not."""
        if not self._workers:
            from ..allocator import NumpyPool

            pool = NumpyPool(warmup=0, max_plans=KINDS, limit=limit)
            try:
                pool.install()
            except PoolError as error:
                return f"stowplan serves no tasks of {worker.name}: {error}"
            self.pool = pool
        self._workers.add(worker.id)
        return None

    def leave(self, worker: Worker) -> None:
        """Serve it no longer. Arrays that the pool has handed out stay its own; so may tasks that run still."""
        self._workers.discard(worker.id)
        if self._workers or self.pool is None:
            return
        self.pool.uninstall()
        self.pool = None

    def trim(self) -> None:
        if self.pool is not None:
            self.pool.trim()

    def stats(self) -> Stats:
        if self.pool is None:
            raise PoolError(
                "no pool serves this worker; expected client.register_plugin(stowplan.dask.PoolPlugin())"
            )
        return self.pool.stats


_process = _Process()


def _resident(worker: Worker, measure: Callable[[], int]) -> int:
    """Return the bytes that a worker's process has resident. If Dask would act on them, the pool is trimmed first."""
    manager = worker.memory_manager
    shares = (manager.memory_spill_fraction, manager.memory_pause_fraction, config.get(TERMINATE))
    if measure() > min(filter(None, shares), default=1.0) * (manager.memory_limit or sys.maxsize):
        _process.trim()
    return measure()


class _InStep:
    """A task, whose call is a step of the pool that serves then, if one does; all else is the task's own.

    Where Dask pickles it (an executor of processes), the task itself arrives.
    """

    def __init__(self, task: Any, key: Any) -> None:
        self._task, self._key = task, key

    def __call__(self, data: Mapping[Any, Any]) -> Any:
        pool = _process.pool
        if pool is None:
            return self._task(data)
        function = getattr(getattr(self._task, "func", None), "__name__", "")
        key = _kind(f"{key_split(self._key)} {function}", data.values())
        with pool.step(key, keeps_results=True):
            return self._task(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def __repr__(self) -> str:
        return repr(self._task)

    def __reduce__(self) -> Any:
        return _itself, (self._task,)


def _itself(task: Any) -> Any:
    return task


def _kind(name: str, values: Iterable[object]) -> str:
    """Return the step key of a task, by its name and by the arrays among its arguments."""
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    # Of arrays in another order many functions make a copy first.
    others = sum(not array.flags.c_contiguous for array in arrays)
    return f"{name} ({len(arrays)} arrays, {sum(array.nbytes for array in arrays)} bytes, {others} not in C order)"
