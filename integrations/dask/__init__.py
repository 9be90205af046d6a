"""A plugin for Dask's workers: the arrays of all their threads from a pool's heap.

::

    client.register_plugin(PoolPlugin(limit="4 GiB"))

    worker process     pool, in the place of NumPy's default handler
      thread 1, 2, ...   arrays of tasks:                      the heap, which keeps what is freed for the next ones
      event loop         arrays received from other workers:   the heap, too

Tasks are no steps: the heap alone takes less time and memory than a plan for each kind (docs/decisions/dropped.rst).

Dask spills, and pauses a worker, by the memory that its process has resident. What the pool keeps for later requests
would count, and stay for ever while no task runs: so it is freed before Dask sees a number that it would act on, which
a worker's `monitor.get_process_memory` returns. All names are Dask's public ones. Tested with Dask 2026.8.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.errors import MissingDependencyError, PoolError

try:
    from dask import config
    from distributed import Worker, WorkerPlugin
except ImportError as error:
    raise MissingDependencyError(
        f"stowplan.dask: {error}; expected: pip install '.[dask]' in stowplan's clone"
    ) from error

from ..allocator.options import limit_bytes
from ..common.host_memory import host_memory
from ..common.units import parse_share
from ..prediction.dask_resources import RESOURCE, MemoryPlugin, needs, worker_memory

if TYPE_CHECKING:
    from ..allocator import NumpyPool
    from ..allocator.stats import Stats

__all__ = ["RESOURCE", "MemoryPlugin", "PoolPlugin", "needs", "stats"]

logger = logging.getLogger(__name__)

METRICS: dict[str, Callable[[Stats], int]] = {
    "stowplan requests": lambda stats: stats.requests,
    "stowplan live bytes": lambda stats: stats.live_bytes,
    "stowplan reserved bytes": lambda stats: stats.reserved_bytes,
}
"""Columns of the dashboard's page "Workers"."""

TERMINATE = "distributed.worker.memory.terminate"
"""Dask's setting: the share of its memory limit at which a worker is ended."""

LOG_SECONDS = 10.0
"""Between two lines of a log."""


class PoolPlugin(WorkerPlugin):  # type: ignore[misc]  # Dask's is untyped here
    """Serve the arrays of Dask's workers from a pool's heap.

    Parameters
    ----------
    limit
        The most memory that the arrays of a worker process may take: bytes, text such as ``"4 GiB"``, or of the
        worker's memory limit ``"80%"``, or a fraction above 0 and up to 1 (as a float). A task that requests more gets
        a MemoryError that tells what fills the memory. None: no limit but the system's.
    log_directory
        A directory for a file of each worker, ``stowplan-NAME.jsonl``: its counts as a line of JSON, at the beginning,
        every ten seconds, and at the end. None: no files.

    Raises
    ------
    PoolError
        ``limit`` is none of these.

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

    def setup(self, worker: Worker) -> None:
        """Serve a worker's process; called by Dask."""
        why = _process.join(worker, self._bytes(worker))
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
        if worker.id not in _process.workers:
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
        return METRICS[name](stats())

    def _write_log(self) -> None:
        assert self._log is not None
        self._logged = time.monotonic()
        line = {"time": time.time(), "pid": os.getpid()} | asdict(stats())
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def stats() -> Stats:
    """Return the counts of this worker's pool: ``client.run(stowplan.dask.stats)``.

    Raises
    ------
    PoolError
        No pool serves this process.
    """
    if _process.pool is None:
        raise PoolError(
            "no pool serves this worker; expected client.register_plugin(stowplan.dask.PoolPlugin())"
        )
    return _process.pool.stats


class _Process:
    """What serves the workers of this process."""

    def __init__(self) -> None:
        self.workers: set[str] = set()
        self.pool: NumpyPool | None = None

    def join(self, worker: Worker, limit: int | None) -> str | None:
        """Serve a worker, or tell why not."""
        if not self.workers:
            from ..allocator import NumpyPool

            pool = NumpyPool(limit=limit)
            if limit is None:  # which the heap alone does not know
                pool.serve_by_heap()
            try:
                pool.install()
            except PoolError as error:
                return f"stowplan serves no tasks of {worker.name}: {error}"
            self.pool = pool
        self.workers.add(worker.id)
        return None

    def leave(self, worker: Worker) -> None:
        """Serve it no longer. Arrays that the pool has handed out stay its own; so may tasks that run still."""
        self.workers.discard(worker.id)
        if not self.workers and self.pool is not None:
            self.pool.uninstall()
            self.pool = None


_process = _Process()


def _resident(worker: Worker, measure: Callable[[], int]) -> int:
    """Return the bytes that a worker's process has resident. If Dask would act on them, the pool is trimmed first."""
    manager = worker.memory_manager
    shares = (manager.memory_spill_fraction, manager.memory_pause_fraction, config.get(TERMINATE))
    limit = min(filter(None, shares), default=1.0) * (manager.memory_limit or sys.maxsize)
    if measure() > limit and _process.pool is not None:
        _process.pool.trim()
    return measure()
