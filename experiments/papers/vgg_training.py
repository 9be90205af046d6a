"""Train a network in processes of their own: plain Chainer on NumPy, and stowplan in less memory.

NNTrainer's case: VGG16 for images of 32 x 32, or a perceptron, whose parameters are most of its memory; a batch of 64,
SGD with momentum. A process trains as many steps as it is told, and prints what it
took as a line of JSON. Where a control group for memory can be made, it is held to a limit, without the kernel's swap.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stowplan.errors import BudgetError

from ..measures.apart import ONE_THREAD, KilledError, ask
from ..measures.usage import of_this_process

WIDTHS = (256, 256, 100)
MLP = (1024, 12)
"""Width and layers."""
SETTLED = 5
"""Steps before a schedule serves."""


def train(way: str, budget: int, steps: int, part: int, network: str = "vgg16") -> dict[str, Any]:
    """Train in this process.

    Parameters
    ----------
    way
        ``"plain"``, ``"pool"``, ``"recomputed"`` or ``"swapped"``: with parameters and state swapped, too.
    budget
        Bytes that a step may have alive.
    steps
        How many.
    part
        The network has this part of its channels, and of its batch of 64; 1: all.
    network
        ``"vgg16"`` or ``"mlp"``.
    """
    import stowplan.chainer  # isort: skip (mends Chainer before it is imported)
    import chainer

    np.random.seed(0)  # noqa: NPY002 (Chainer draws its parameters from it)
    pool = None if way == "plain" else stowplan.NumpyPool()
    start = of_this_process("VmHWM")
    with contextlib.nullcontext() if pool is None else pool:
        model = _network(network, part)
        optimizer = chainer.optimizers.MomentumSGD(0.01).setup(model)
        step: Any = contextlib.nullcontext if pool is None else pool.step
        if way in ("recomputed", "swapped"):
            scheduler = stowplan.chainer.Scheduler(
                optimizer, pool, budget, swap=True, swap_parameters=way == "swapped", watch=False
            )
            step = scheduler.step
        batches = np.random.default_rng(1)
        taken = []
        shape = (64 // part, *((3, 32, 32) if network == "vgg16" else (MLP[0] // part,)))
        for _ in range(steps):
            x = batches.standard_normal(shape, dtype=np.float32)
            t = batches.integers(0, WIDTHS[-1], 64 // part, dtype=np.int32)
            began = time.perf_counter(), time.process_time()
            try:
                with step():
                    optimizer.update(model, x, t)
            except BudgetError as error:
                return {"least": error.least}
            taken.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    resident, last = of_this_process("VmHWM"), of_this_process("VmRSS")  # before all parameters are read
    bits = hashlib.sha256()
    for param in model.params():
        bits.update(np.ascontiguousarray(param.array))
        bits.update(np.ascontiguousarray(param.update_rule.state["v"]))
    wall, cpu = np.array(taken).T
    return {
        "start": start,
        "resident": resident,
        "last": last,
        "live": 0 if pool is None else pool.stats.peak_live_bytes,
        "wall": float(wall.sum()),
        "cpu": float(cpu.sum()),
        "later": float(np.median(cpu[SETTLED:])),
        "bits": bits.hexdigest(),
    }


def _network(name: str, part: int) -> Any:
    import chainer
    import chainer.functions as F  # noqa: N812 (Chainer's own habit)
    import chainer.links as L  # noqa: N812

    from ..models.vgg import BLOCKS

    layers: list[Any] = []
    if name == "mlp":
        width = MLP[0] // part
        for _ in range(MLP[1]):
            layers += [L.Linear(width, width), F.relu]
        return L.Classifier(chainer.Sequential(*layers))

    class VGG16(chainer.Sequential):  # type: ignore[misc]
        def forward(self, x: Any, t: Any) -> Any:
            return F.softmax_cross_entropy(super().forward(x), t)

    channels = 3
    for block in BLOCKS:
        for width in block:
            layers += [L.Convolution2D(channels, width // part, 3, pad=1), F.relu]
            channels = width // part
        layers.append(lambda x: F.max_pooling_2d(x, 2, 2))
    for width in WIDTHS:
        layers += [L.Linear(channels, width), F.relu]
        channels = width
    return VGG16(*layers[:-1])


def measure(
    way: str, budget: int = 0, steps: int = 10, part: int = 1, network: str = "vgg16", *, limit: int = 0
) -> dict[str, Any]:
    """Train in a process of its own.

    Parameters
    ----------
    way, budget, steps, part, network
        As for `train`.
    limit
        Bytes that a control group holds the process to, if one can be made; 0: none.

    Returns
    -------
    dict
        What the process took; ``least`` if the budget cannot be kept; ``killed`` if it was for its memory.
    """
    asked = {"way": way, "budget": budget, "steps": steps, "part": part, "network": network}
    with _group(limit) as group:
        enter = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)) if group else ()
        try:
            found: dict[str, Any] = ask(f"{__name__}:train", asked, ONE_THREAD, through=enter)
        except KilledError:
            if not limit:
                raise
            return {"killed": True}
        return found


def can_hold() -> bool:
    """Whether a control group for memory can be made here."""
    with _group(1 << 40) as group:
        return group is not None


@contextlib.contextmanager
def _group(limit: int) -> Iterator[Path | None]:
    """Have a control group that holds its processes to a limit; None: none is asked for, or can be made here."""
    group = _made(limit) if limit else None
    try:
        yield group
    finally:
        if group is not None:
            group.rmdir()


def _made(limit: int) -> Path | None:
    """Make a control group of version 2, or 1; return its folder."""
    for root, bound, swap in (
        ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ):
        if not (Path(root) / "cgroup.procs").exists():
            continue
        group = Path(root) / f"stowplan-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            (group / bound).write_text(str(limit))
            with contextlib.suppress(OSError):
                (group / swap).write_text("0" if bound == "memory.max" else str(limit))
            return group
        with contextlib.suppress(OSError):
            group.rmdir()
    return None
