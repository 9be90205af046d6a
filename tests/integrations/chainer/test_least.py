"""The least budget that an error names is the same in every run, and is accepted when it is asked for."""

from __future__ import annotations

import random
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest

from stowplan.chainer import Scheduler
from stowplan.errors import BudgetError

UNITS, BATCH, STEPS = 24, 64, 6
PROGRAMS, SAMPLE = 200, 4
"""All programs, and those that are not only for `make thorough`."""


class Drawn(chainer.Chain):  # type: ignore[misc]
    """Operators drawn one after another, each of values that are there already."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        with self.init_scope():
            self.layers = chainer.ChainList(*(L.Linear(UNITS, UNITS) for _ in range(4)))
            self.norm, self.last = L.BatchNormalization(UNITS), L.Linear(UNITS, 5)

    def forward(self, x: Any) -> Any:
        draw = random.Random(self.seed)
        values = [self.layers[0](x)]
        for _ in range(draw.randint(4, 12)):
            h, other = draw.choice(values[-3:]), draw.choice(values)
            values.append(
                draw.choice(
                    [
                        lambda h, other: draw.choice(list(self.layers))(h),
                        lambda h, other: self.norm(h),
                        lambda h, other: draw.choice([F.relu, F.tanh, F.sigmoid])(h),
                        lambda h, other: F.dropout(h, 0.3),
                        lambda h, other: h + other,
                        lambda h, other: h * F.sigmoid(other),
                        lambda h, other: F.concat([h[:, : UNITS // 2], other[:, UNITS // 2 :]]),
                    ]
                )(h, other)
            )
        return self.last(values[-1] + sum(F.sum(value) for value in values) * np.float32(1e-3))


def asked(seed: int, budget: int) -> tuple[int | None, int]:
    """Train a program within a budget; return the least that an error names, and how many steps were scheduled."""
    np.random.seed(0)
    draw, model = np.random.default_rng(1), Drawn(seed)
    optimizer = [chainer.optimizers.SGD, chainer.optimizers.MomentumSGD, chainer.optimizers.Adam][seed % 3]()
    optimizer.setup(model)
    scheduler = Scheduler(optimizer, budget=budget, swap=seed % 5 == 4)
    try:
        for _ in range(STEPS):
            x = draw.standard_normal((BATCH, UNITS)).astype(np.float32)
            t = draw.integers(0, 5, BATCH, dtype=np.int32)
            with scheduler.step():
                if seed % 2:
                    optimizer.update(lambda x=x, t=t: F.softmax_cross_entropy(model(x), t))
                else:
                    loss = F.softmax_cross_entropy(model(x), t)
                    model.cleargrads()
                    loss.backward()
                    optimizer.update()
                    del loss
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
