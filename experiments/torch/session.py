"""Steps of a network, and what they use.

A *turn* is some steps in a row. Batches are drawn outside of the step, as a data loader would. What is counted is this
process's own, of all its threads, from the turn's begin to its end.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from .networks import Network

if TYPE_CHECKING:
    from stowplan import TorchPool

TRAINING, INFERENCE = "training", "inference"
PHASES = (TRAINING, INFERENCE)
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
}


@dataclass(frozen=True)
class Usage:
    """What a turn used.

    Attributes
    ----------
    steps
        How many.
    cpu, system
        User and system time together, and system time alone, in seconds.
    faults
        Minor page faults.
    rss, peak
        Resident set in bytes: at the end, and the largest in the turn (None: the system does not say).
    losses
        Digest of each step's loss.
    """

    steps: int
    cpu: float
    system: float
    faults: int
    rss: int
    peak: int | None
    losses: str


class Session:
    """A network with its data, from a seed.

    Parameters
    ----------
    network, phase, quick
        What it does.
    optimizer
        A key of `OPTIMIZERS`.
    seed
        Of parameters and batches.
    """

    def __init__(
        self, network: Network, phase: str, quick: bool = False, optimizer: str = "adam", seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self._network = network
        self._size = network.quick_size if quick else network.size
        self._module = network.build(network.quick_width if quick else network.width)
        self._module.train(phase == TRAINING)
        self._optimizer = OPTIMIZERS[optimizer](self._module.parameters()) if phase == TRAINING else None

    def run(self, steps: int, pool: TorchPool | None = None, marked: bool = True) -> Usage:
        """Run a turn; each step is a step of the pool, if there is one and steps are marked."""
        losses = []
        reset = _reset_peak()
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(steps):
            inputs, classes = self._network.batch(self._size)
            with pool.step() if pool is not None and marked else nullcontext():
                losses.append(self._step(inputs, classes))
        after = resource.getrusage(resource.RUSAGE_SELF)
        system = after.ru_stime - before.ru_stime
        return Usage(
            steps,
            after.ru_utime - before.ru_utime + system,
            system,
            after.ru_minflt - before.ru_minflt,
            _status("VmRSS"),
            _status("VmHWM") if reset else None,
            digest(losses),
        )

    def _step(self, inputs: Tensor, classes: Tensor) -> Tensor:
        if self._optimizer is None:
            with torch.no_grad():
                return F.cross_entropy(self._module(inputs), classes)
        self._optimizer.zero_grad()
        loss = F.cross_entropy(self._module(inputs), classes)
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def digest(self) -> str:
        """Return a digest of all parameters and statistics, and of the optimizer's state."""
        found = list(self._module.state_dict().values())
        for state in self._optimizer.state.values() if self._optimizer is not None else ():
            found += [value for value in state.values() if isinstance(value, Tensor)]
        return digest(found)


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a digest of the tensors' bytes."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def _reset_peak() -> bool:
    """Have the kernel begin anew with the largest resident set; return whether it can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return True
    return False


def _status(key: str) -> int:
    """Return a value of this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")
