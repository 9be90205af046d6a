"""Steps of a network, in turns, and what these use. A *turn* is some steps in a row.

A step draws its batch, too, so that all that is asked for is asked for in steps.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (PyTorch's own name for it)

from ..measures.usage import of_this_process
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
    """What this process, with all its threads, used for a turn.

    Attributes
    ----------
    faults
        Minor page faults.
    peak
        The largest resident set in the turn, in bytes (in the process's life, if the system does not count from the
        turn's beginning).
    losses
        Digest of each step's loss.
    """

    faults: int
    peak: int
    losses: str


def counted(steps: int, run: Callable[[int], str]) -> Usage:
    """Run a turn by `run`, which takes the number of steps and returns the digest of their losses."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the largest resident set is that of now
    before = resource.getrusage(resource.RUSAGE_SELF)
    losses = run(steps)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(after.ru_minflt - before.ru_minflt, of_this_process("VmHWM"), losses)


class Session:
    """A network with its data, from the seed 0.

    Parameters
    ----------
    network, phase, quick
        What it does.
    optimizer
        A key of `OPTIMIZERS`.
    """

    def __init__(self, network: Network, phase: str, quick: bool = False, optimizer: str = "adam") -> None:
        torch.manual_seed(0)
        self._network = network
        self._size = network.quick_size if quick else network.size
        self._module = network.build(network.quick_width if quick else network.width)
        self._module.train(phase == TRAINING)
        self._optimizer = OPTIMIZERS[optimizer](self._module.parameters()) if phase == TRAINING else None

    def run(self, steps: int, pool: TorchPool | None = None, marked: bool = True) -> Usage:
        """Run a turn; each step is a step of the pool, if there is one and steps are marked."""
        return counted(steps, lambda steps: digest(self._losses(steps, pool if marked else None)))

    def _losses(self, steps: int, pool: TorchPool | None) -> list[Tensor]:
        losses = []
        for _ in range(steps):
            with nullcontext() if pool is None else pool.step():
                losses.append(self._step(*self._network.batch(self._size)))
        return losses

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
