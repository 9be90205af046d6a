"""Steps that PyTorch tells: where an optimizer's step has ended."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from stowplan import TorchPool
from tests.running import in_threads

from .alone import alone

ITERATIONS = 50


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def train(serve: bool) -> tuple[list[Any], list[tuple[int, int]]]:
    """Train without a mark; return the parameters, and the pool's requests, those replayed first, by iteration.

    Gradients are summed over four batches, a second optimizer updates, and every tenth time it is evaluated.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(1)
    one, two = convolutions(), nn.Sequential(nn.Linear(200, 300), nn.Tanh(), nn.Linear(300, 200))
    first, second = torch.optim.AdamW(one.parameters()), torch.optim.SGD(two.parameters(), 1e-2, momentum=0.9)
    pool, counts = TorchPool(auto_step=True), []

    def loss(batch: int = 16) -> Any:
        images = torch.randn(batch, 3, 32, 32, generator=draw)
        return nn.functional.cross_entropy(one(images), torch.randint(10, (batch,), generator=draw))

    with pool if serve else nullcontext():
        for number in range(ITERATIONS):
            first.zero_grad()
            for _ in range(4):
                loss().backward()
            first.step()
            second.zero_grad()
            two(torch.randn(64, 200, generator=draw)).square().mean().backward()
            second.step()
            if number % 10 == 9:
                with torch.no_grad():
                    loss(64)
            pool.wait()
            counts.append((pool.stats.replayed, pool.stats.requests))
    parameters = [
        parameter.detach().numpy().tobytes() for parameter in (*one.parameters(), *two.parameters())
    ]
    return parameters, counts


def test_an_unmarked_training_is_replayed_from_the_sixth_update_on() -> None:
    plain, _ = alone(train, False)
    served, counts = alone(train, True)
    assert served == plain
    (replayed, requests), (all_replayed, all_requests) = counts[4], counts[-1]
    assert all_replayed - replayed >= 0.93 * (all_requests - requests) > 0


class Wrapper(torch.optim.Optimizer):
    """Has another optimizer step, as those that average parameters do."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__([torch.zeros(1)], {})
        self.inner = inner

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()


def edges() -> list[int]:
    """Return the steps after an optimizer's within another's; after one that failed; and after another thread's."""
    pool, steps = TorchPool(auto_step=True), []
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter])
    outer = Wrapper(optimizer)

    def fail() -> Any:
        raise KeyboardInterrupt

    with pool:
        for _ in range(4):
            outer.step()
        steps.append(pool.stats.steps)
        try:
            optimizer.step(fail)
        except KeyboardInterrupt:
            steps.append(pool.stats.steps)
        optimizer.step()
        in_threads(optimizer.step)
        steps.append(pool.stats.steps)
    return [*steps, pool.stats.steps]


def test_one_step_for_each_outermost_update_of_any_thread() -> None:
    assert alone(edges) == [3, 3, 5, 6]
