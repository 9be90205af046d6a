"""Predicted peaks for Dask: memory as a resource, so that two large tasks do not meet on a worker.

::

    client.register_plugin(MemoryPlugin())                     each worker has 90 % of its limit as a resource
    client.submit(f, x, **needs(prediction, x=x))              the task takes its predicted peak of it
    with dask.annotate(**needs(prediction, x=block)): ...      so do the tasks of a collection

The scheduler runs a task where so much of the resource is left, and lets it wait otherwise. These are Dask's own
worker resources (https://distributed.dask.org/en/stable/resources.html); `stowplan.dask` has both names.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from distributed import Status, Worker, WorkerPlugin

from ..common.host_memory import host_memory
from ..common.units import human_bytes, parse_bytes
from .prediction import Prediction

RESOURCE = "stowplan bytes"


class MemoryPlugin(WorkerPlugin):  # type: ignore[misc]  # Dask's is untyped here
    """Give each worker a resource: bytes for what tasks have alive.

    Parameters
    ----------
    share
        The share of the worker's memory limit, above 0 and up to 1; the rest is for Python and what is stored.
    """

    name = "stowplan memory"

    def __init__(self, share: float = 0.9) -> None:
        self.share = share

    async def setup(self, worker: Worker) -> None:
        """Declare the resource; called by Dask."""
        await worker.set_resources(**{RESOURCE: int(worker_memory(worker) * self.share)})
        # A new worker brings no resources, so tasks that need them wait when it comes, and its declaring them does
        # not start them (distributed 2026.8): the scheduler looks at them again when a worker begins to run.
        if worker.status == Status.running:
            worker.status = Status.paused
            worker.status = Status.running


def worker_memory(worker: Worker) -> int:
    """Return the bytes that a worker may use: its memory limit, or what the host allows where that is less."""
    return min(host_memory(), worker.memory_manager.memory_limit or sys.maxsize)


def needs(prediction: Prediction, limit: int | str | None = None, **shapes: Any) -> dict[str, dict[str, int]]:
    """Return keywords for ``client.submit`` and ``dask.annotate``: a task's peak, with its arguments.

    Parameters
    ----------
    prediction
        From `stowplan.predict`.
    limit
        The most that a worker has. Dask never starts a task that needs more than every worker has.
    shapes
        The arguments' shapes, as `.Prediction.peak` takes them.

    Raises
    ------
    MemoryError
        The peak is above the limit.

    Warns
    -----
    RuntimeWarning
        The prediction cannot tell, and the task takes the lower bound; or it is extrapolated.
    """
    peak = prediction.peak(**shapes)
    if peak.doubt:
        warnings.warn(f"a task's peak: {peak}", RuntimeWarning, stacklevel=2)
    if limit is not None and peak.total > parse_bytes(limit):
        raise MemoryError(
            f"a task needs {human_bytes(peak.total)}, and a worker has {limit}; most at {peak.line}"
        )
    return {"resources": {RESOURCE: peak.total}}
