"""Chainer's MNIST example: a perceptron of three layers. ``python -m experiments.examples.train_mnist --pool``."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

import stowplan
import stowplan.chainer  # before chainer, which it mends

import chainer
import chainer.functions as F
import chainer.links as L
from chainer import training
from chainer.training import extensions


class MLP(chainer.Chain):
    """As in the example: its layers' input sizes are found out in the first step."""

    def __init__(self, units: int, classes: int) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, units)
            self.l2 = L.Linear(None, units)
            self.l3 = L.Linear(None, classes)

    def forward(self, x: Any) -> chainer.Variable:
        """Return scores (batch, classes) for images (batch, 784)."""
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


def digits(samples: int, seed: int) -> chainer.datasets.TupleDataset:
    """Return images (samples, 784) float32 in [0, 1) and labels (samples,) int32: MNIST's shape."""
    data = np.random.default_rng(seed)
    images = data.random((samples, 784), dtype=np.float32)
    return chainer.datasets.TupleDataset(images, data.integers(0, 10, samples, dtype=np.int32))


def train(
    pool: stowplan.NumpyPool | None,
    out: str = "result",
    epochs: int = 20,
    units: int = 1000,
    samples: tuple[int, int] = (60_000, 10_000),
) -> training.Trainer:
    """Train from scratch and return the trainer; `samples` for training and for evaluation."""
    np.random.seed(0)  # noqa: NPY002 (Chainer draws its parameters from it)
    model = L.Classifier(MLP(units, 10))
    optimizer = chainer.optimizers.Adam().setup(model)

    train_iter = chainer.iterators.SerialIterator(digits(samples[0], 0), 100)
    test_iter = chainer.iterators.SerialIterator(digits(samples[1], 1), 100, repeat=False, shuffle=False)

    if pool is None:
        updater = training.updaters.StandardUpdater(train_iter, optimizer)
    else:
        updater = stowplan.chainer.Updater(train_iter, optimizer, pool=pool)
    trainer = training.Trainer(updater, (epochs, "epoch"), out=out)
    trainer.extend(extensions.Evaluator(test_iter, model))
    if pool is not None:
        trainer.extend(stowplan.chainer.MemoryReport(pool))
    trainer.extend(extensions.LogReport())
    columns = ["main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy"]
    trainer.extend(extensions.PrintReport(["epoch", *columns, "pool/replayed", "pool/reserved"]))
    trainer.run()
    return trainer


@click.command(help=__doc__)
@click.option("--pool", is_flag=True, help="Train through a pool.")
def main(pool: bool) -> None:
    """Run the example."""
    train(stowplan.NumpyPool() if pool else None)


if __name__ == "__main__":
    main()
