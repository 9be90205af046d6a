"""Training steps of PyTorch's models: plain ones and scheduled ones, their peaks and seconds.

Peaks are measured by `stowplan.torch.Meter` in a step after the first, so that the optimizer's state is there.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stowplan.errors import BudgetError
from stowplan.torch import Meter, ScheduledTraining, schedule

Step = Callable[..., Tensor]

STEPS = 3
"""Steps after which parameters are compared."""
# Steps in turn that are timed, and seconds for them, whichever is more.
TURNS, PATIENCE = 9, 5.0


@dataclass(frozen=True)
class Model:
    """A model and how it is trained.

    Attributes
    ----------
    build
        The module.
    batch
        Its inputs, random.
    loss
        Of the module and a batch.
    block
        Name of the class whose modules `torch.utils.checkpoint` is put around.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, ...]]
    loss: Callable[..., Tensor]
    block: str


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer that all train with."""
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def plain_step(model: nn.Module, loss: Callable[..., Tensor], meter: list[Meter] | None = None) -> Step:
    """Return a training step of PyTorch's; `meter` holds the one that counts the update, if any."""
    optimizer = optimizer_of(model)

    def step(*batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        found = loss(model, *batch)
        found.backward()
        with meter[0] if meter else nullcontext():
            optimizer.step()
        return found.detach()

    return step


def peak_of(step: Step, batch: tuple[Tensor, ...], meters: list[Meter] | None = None) -> int:
    """Return the bytes that a step has alive at most, beside what was there before; `meters`: that a step looks at."""
    meter = Meter()
    if meters is not None:
        meters.append(meter)
        step(*batch)
        meters.clear()
    else:
        with meter:
            step(*batch)
    return max(meter.live)


def seconds_of(
    step: Step,
    plain: Step,
    batch: tuple[Tensor, ...],
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Return the time of a step over that of the plain one; each the least of several, in turns."""
    least, done, until = [float("inf")] * 2, 0, time.perf_counter() + PATIENCE
    while done < TURNS or time.perf_counter() < until:
        done += 1
        for k, one in enumerate((step, plain)):
            began = clock()
            one(*batch)
            least[k] = min(least[k], clock() - began)
    return least[0] / least[1]


def trained(step: Step, batch: tuple[Tensor, ...]) -> None:
    """Run the first steps, with the same random numbers for all."""
    torch.manual_seed(1)
    for _ in range(STEPS):
        step(*batch)


class Original:
    """A model as it was made, which all ways to train it begin with, and what its plain training comes to.

    Attributes
    ----------
    model, loss, batch, block
        The module before its first step, its loss, the inputs, and as of `Model`.
    plain
        A step of PyTorch's, of a model that has been trained.
    expected
        What that model had come to, by name.
    """

    def __init__(self, model: Model) -> None:
        torch.manual_seed(0)
        self.model, self.batch = model.build().train(), model.batch()
        self.loss, self.block = model.loss, model.block
        twin = self.copy()
        self.plain = plain_step(twin, self.loss)
        trained(self.plain, self.batch)
        self.expected = copy.deepcopy(twin.state_dict())

    def copy(self) -> nn.Module:
        """Return a model to be trained."""
        return copy.deepcopy(self.model)

    def with_checkpoints(self) -> nn.Module:
        """Return a model to be trained with `torch.utils.checkpoint` around its blocks."""
        own = self.copy()
        for module in own.modules():
            if type(module).__name__ == self.block:
                module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
        return own

    def scheduled(self, budget: int | None, **options: Any) -> tuple[nn.Module, ScheduledTraining]:
        """Return a model, and its training by a schedule."""
        own = self.copy()
        return own, schedule(own, optimizer_of(own), self.loss, budget=budget, **options)

    def least(self) -> int:
        """Return the bytes of the least schedule that is found, with the resident ones."""
        try:
            return self.scheduled(0)[1].plan(*self.batch).peak
        except BudgetError as error:
            return error.least

    def same(self, own: nn.Module) -> bool:
        """Whether a model that has been trained is as expected, to the bit."""
        return all(torch.equal(one, self.expected[key]) for key, one in own.state_dict().items())
