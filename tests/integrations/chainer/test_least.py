"""The least budget that an error names is the same in every run, and is accepted when it is asked for."""

from __future__ import annotations

import chainer
import numpy as np
import pytest

from stowplan.chainer import Scheduler
from stowplan.errors import BudgetError

from .test_random_networks import RandomNetwork
from .training_runs import batches, train_step

STEPS = 6
PROGRAMS, SAMPLE = 200, 4
"""All programs, and those that are not only for `make thorough`."""


def asked(seed: int, budget: int) -> tuple[int | None, int]:
    """Train a program within a budget; return the least that an error names, and how many steps were scheduled."""
    np.random.seed(0)
    model = RandomNetwork(seed)
    optimizer = [chainer.optimizers.SGD, chainer.optimizers.MomentumSGD, chainer.optimizers.Adam][seed % 3]()
    optimizer.setup(model)
    scheduler = Scheduler(optimizer, budget=budget, swap=seed % 5 == 4)
    try:
        for x, t in batches(STEPS, 16):
            with scheduler.step():
                train_step(model, optimizer, x, t, "update" if seed % 2 else "by hand")
            scheduler.wait()
    except BudgetError as error:
        return error.least, scheduler.stats.scheduled
    return None, scheduler.stats.scheduled


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=() if n < SAMPLE else pytest.mark.slow) for n in range(PROGRAMS)],
)
def test_the_least_that_is_named_is_accepted(seed: int) -> None:
    least, _ = asked(seed, 1000)
    assert least is not None
    assert asked(seed, 2000) == (least, 0)
    for _ in range(2):
        assert asked(seed, least) == (None, STEPS - 4)
