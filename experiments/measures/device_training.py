"""Train a network on a device, and note the device's bytes after each step: a process of `experiments.device`.

What is in use of the device is what its driver says, ``memGetInfo``: the pool that is measured is not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from stowplan.compat import enable_chainer
from stowplan.errors import BudgetError, ProfileError

from ..models import MODELS, PTB, Model
from .data import Data
from .scheduled_steps import ScheduledWorkload

WAYS = {
    "cupy": "CuPy's own pool",
    "pool": "CupyPool",
    "auto": "CupyPool, steps told by Chainer",
    "managed": "CupyPool, first steps in managed memory",
    "lean": "CupyPool, lean",
    "budget": "CupyPool, under a budget",
}
NETWORKS = {name: MODELS[name] for name in ("alexnet", "googlenet", "resnet50", "seq2seq")} | {"ptb": PTB}
PAGE = 2 << 20
"""Bytes that a device counts memory in."""
OUT_OF_MEMORY = 2
"""Status of the error that the runtime itself raises."""


@dataclass(frozen=True)
class Task:
    """A training run on a device.

    Attributes
    ----------
    model, batch, size
        A network of `NETWORKS`; the side of its images, or its number of words. None: the network's own.
    way
        A name of `WAYS`.
    steps
        To train.
    seed
        Of parameters and data.
    budget
        Bytes that the steps may have alive, parameters and state included.
    """

    model: str
    batch: int
    way: str
    steps: int
    seed: int
    size: int | None = None
    budget: int | None = None

    def workload(self) -> ScheduledWorkload:
        """Return a new workload on the device; the same each time."""
        import cupy

        model: Model = NETWORKS[self.model]
        if self.size is not None:
            setattr(model.network, "length" if model.kind == "words" else "insize", self.size)
        cupy.random.seed(self.seed)  # Chainer draws masks from it, and parameters that it makes late
        return ScheduledWorkload(model, "training", self.batch, Data(self.seed), gpu=True)


def in_use() -> int:
    """Return the bytes of the device that are not free."""
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free)


@dataclass
class Use:
    """Bytes of the device in use.

    Attributes
    ----------
    before
        When nothing was allocated yet: the process's context, and what others have. It counts for none of the rest.
    after
        After each step.
    most
        At any request.
    """

    before: int = field(default_factory=in_use)
    after: list[int] = field(default_factory=list)
    most: int = 0

    def look(self) -> int:
        """Return the bytes in use now."""
        found = in_use() - self.before
        self.most = max(self.most, found)
        return found

    def watched(self, malloc: Callable[[int], Any]) -> Callable[[int], Any]:
        """Return the allocator with a look at the device after each request."""

        def served(size: int) -> Any:
            memory = malloc(size)
            self.look()
            return memory

        return served


def train(**fields: Any) -> dict[str, Any]:
    """Train as a `Task` says.

    Returns
    -------
    dict
        ``in_use``: bytes of the device after each step; ``most``: at any request. ``fingerprint``: of everything that
        was trained. With stowplan's pool: ``reserved`` after each step and ``peak_reserved``, as the pool itself has
        it; ``replayed``: the share of each step's requests that came from the plan; ``arena`` and ``lower_bound``, 0
        without a plan. If the device was too small, only ``in_use`` and ``most`` of the steps that were run, and
        ``failed``, the error. If no schedule keeps to the budget, ``least``: the one that would do.
    """
    enable_chainer()
    import cupy

    task, use = Task(**fields), Use()
    found: dict[str, Any] = {"in_use": use.after}
    try:
        found |= _train(task, use)
    except BudgetError as error:
        found["least"] = error.least
    except (MemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
        if not isinstance(error, MemoryError) and error.status != OUT_OF_MEMORY:
            raise
        found["failed"] = str(error).splitlines()[0]
    return found | {"most": use.most}


def _train(task: Task, use: Use) -> dict[str, Any]:
    import cupy

    pool = _pool(task, use)
    work = task.workload()
    scheduled = task.way in ("lean", "budget")
    marked = not scheduled and task.way != "auto"
    if scheduled:
        work.schedule(task.budget, pool)
    reserved: list[int] = []
    counts = [(0, 0)]  # requests, and those that were replayed, by the end of each step
    for _ in range(task.steps):
        with pool.step() if pool is not None and marked else nullcontext():
            work.step()
        if scheduled:
            work.scheduler.wait()
        if pool is not None:
            pool.wait()
            stats = pool.stats
            reserved.append(stats.reserved_bytes)
            counts.append((stats.requests, stats.replayed))
        cupy.cuda.Device().synchronize()
        use.after.append(use.look())
    found: dict[str, Any] = {}
    if pool is not None:
        found = {
            "reserved": reserved,
            "peak_reserved": pool.stats.peak_reserved_bytes,
            "replayed": [(b[1] - a[1]) / max(b[0] - a[0], 1) for a, b in pairwise(counts)],
            **_plan(pool),
        }
    retained = {"retained": work.retained_bytes, "retained_in_pages": work.retained_in(PAGE)}
    return found | retained | {"fingerprint": work.fingerprint()}


def _pool(task: Task, use: Use) -> Any:
    """Make the pool that serves all arrays from now on; return stowplan's, None for CuPy's own."""
    import cupy

    from stowplan import CupyPool

    if task.way == "cupy":
        cupy.cuda.set_allocator(use.watched(cupy.cuda.MemoryPool().malloc))
        return None
    pool = CupyPool(sample="managed" if task.way == "managed" else "device", auto_step=task.way == "auto")
    pool.malloc = use.watched(pool.malloc)  # a scheduler takes it from there
    cupy.cuda.set_allocator(pool.malloc)
    return pool


def _plan(pool: Any) -> dict[str, int]:
    try:
        placement = pool.plan().placement
    except ProfileError:
        return {"arena": 0, "lower_bound": 0}
    return {"arena": int(placement.peak), "lower_bound": int(placement.lower_bound)}
